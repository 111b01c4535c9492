/* Runs the engine that is linked in once on the bytes of a file, inside counted(), for valgrind --toggle-collect. */
#include "cuvil_engine.h"

#include <stdio.h>

__attribute__((noinline)) void counted(void);
void counted(void) {
    cuvil_engine_instance.infer();
    __asm__ volatile("" ::: "memory"); /* no tail call: callgrind sees the function return */
}

int main(int count, char **arguments) {
    const cuvil_engine *engine = &cuvil_engine_instance;
    if (count != 3) return 2;
    FILE *file = fopen(arguments[1], "rb");
    unsigned long size = (unsigned long)engine->inputs[0].count * 4;
    if (!file || fread(engine->input_buffers[0], 1, size, file) != size) return 2;
    fclose(file);
    counted();
    file = fopen(arguments[2], "wb");
    size = (unsigned long)engine->outputs[0].count * 4;
    return !file || fwrite(engine->output_buffers[0], 1, size, file) != size || fclose(file);
}
