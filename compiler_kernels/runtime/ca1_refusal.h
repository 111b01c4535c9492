/* How a kernel refuses a run-time value that the engine was not compiled for: it leaves a sentence and goes on.
 *
 * CA1_REFUSAL is the engine's static pointer, defined by the generated file before any kernel. One work item of a step
 * makes its check, and steps follow each other, so the first refusal in graph order stays, for any number of threads. */
#ifndef CA1_REFUSAL_H
#define CA1_REFUSAL_H

#define CA1_REFUSE(sentence)                                                                           \
    do {                                                                                               \
        if (!__atomic_load_n(&CA1_REFUSAL, __ATOMIC_RELAXED))                                          \
            __atomic_store_n(&CA1_REFUSAL, sentence, __ATOMIC_RELAXED);                                \
    } while (0)

#endif
