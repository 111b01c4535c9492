/* --version and --self-test. */
#include "cuvil_runtime.h"
#include "cuvil_session.h"

#include <string.h>

extern const cuvil_session_hooks cuvil_sessions __attribute__((weak)); /* no object: the policy has no audit.sessions */

static void put_member(const char *name, const char *value) {
    cuvil_putf("\"%s\": ", name);
    cuvil_put_json_string(value);
    cuvil_put(", ");
}

static void put_bound(const char *name, int present, double value) {
    uint64_t bits;
    memcpy(&bits, &value, 8);
    cuvil_putf(", \"%s\": ", name);
    if (present && (bits & 0x7FF0000000000000u) != 0x7FF0000000000000u)
        cuvil_putf("%.9g", value);
    else
        cuvil_put("null");
}

/* Symbols and expressions as strings, sizes as numbers; in text all alike. */
static void put_axes(const cuvil_tensor *tensor, const char *open, const char *close) {
    cuvil_put(open);
    for (int axis = 0; axis < tensor->rank; axis++) {
        const char *text = tensor->axes[axis];
        cuvil_put(axis ? ", " : "");
        if (cuvil_json && strspn(text, "0123456789") != strlen(text))
            cuvil_put_json_string(text);
        else
            cuvil_put(text);
    }
    cuvil_put(close);
}

static void put_symbols(const cuvil_engine *engine) {
    if (cuvil_json && engine->symbol_count) cuvil_put("\"symbols\": {");
    for (int s = 0; s < engine->symbol_count; s++) {
        const cuvil_symbol *symbol = &engine->symbols[s];
        if (cuvil_json) {
            cuvil_put(s ? ", " : "");
            cuvil_put_json_string(symbol->name);
            cuvil_putf(": {\"min\": %ld, \"max\": %ld, \"multiple\": %ld}", (long)symbol->lowest, (long)symbol->highest,
                       (long)symbol->step);
        } else {
            cuvil_putf("%-15s %s from %ld to %ld", "symbol", symbol->name, (long)symbol->lowest, (long)symbol->highest);
            if (symbol->step != 1) cuvil_putf(", a multiple of %ld", (long)symbol->step);
            cuvil_put("\n");
        }
    }
    if (cuvil_json && engine->symbol_count) cuvil_put("}, ");
}

static void put_tensors_json(const char *member, const cuvil_tensor *tensors, int count, int with_files) {
    cuvil_putf("\"%s\": [", member);
    for (int i = 0; i < count; i++) {
        cuvil_put(i ? ", {" : "{");
        put_member("name", tensors[i].name);
        put_member("dtype", cuvil_type_of(&tensors[i])->name);
        cuvil_put("\"shape\": ");
        cuvil_put_shape(tensors[i].shape, tensors[i].rank, "[", "]");
        if (tensors[i].axes) put_axes(&tensors[i], ", \"axes\": [", "]");
        cuvil_putf(", \"bytes\": %ld, \"finite\": %s", tensors[i].count * (long)cuvil_type_of(&tensors[i])->size, tensors[i].finite ? "true" : "false");
        put_bound("lo", tensors[i].has_lo, tensors[i].lo);
        put_bound("hi", tensors[i].has_hi, tensors[i].hi);
        if (with_files) {
            cuvil_put(", \"file\": ");
            cuvil_put_json_string(cuvil_output_file[i]);
        }
        cuvil_put("}");
    }
    cuvil_put("]");
}

static void put_tensors_text(const char *kind, const cuvil_tensor *tensors, int count) {
    for (int i = 0; i < count; i++) {
        cuvil_putf("%-15s %s %s %s", kind, tensors[i].name, cuvil_type_of(&tensors[i])->name, tensors[i].extents ? "at most " : "");
        cuvil_put_shape(tensors[i].shape, tensors[i].rank, "(", ")");
        if (tensors[i].axes) put_axes(&tensors[i], " = (", ")");
        if (tensors[i].finite) cuvil_put(" finite");
        if (tensors[i].has_lo) cuvil_putf(" >= %.9g", tensors[i].lo);
        if (tensors[i].has_hi) cuvil_putf(" <= %.9g", tensors[i].hi);
        cuvil_put("\n");
    }
}

/* The steps of the variant in force. On a processor the generated code cannot run on nothing is selected, and the steps
 * shown are those of the last variant: supported() is generated code. */
static void put_variants(const cuvil_engine *engine, const char *isa) {
    char missing[CUVIL_MISSING_MAX];
    cuvil_missing_features(missing);
    const cuvil_variant *chosen = missing[0] ? NULL : cuvil_choose_variant(engine, isa);
    const cuvil_variant *shown = chosen ? chosen : engine->variants + engine->variant_count - 1;
    if (!cuvil_json) {
        cuvil_putf("%-15s", "isas");
        for (int v = 0; v < engine->variant_count; v++) cuvil_putf(" %s", engine->variants[v].isa);
        cuvil_putf("\n%-15s %s\n%-15s %d\n", "isa", chosen ? chosen->isa : "none: see --self-test", "max_threads",
                   cuvil_most_threads(engine));
        return;
    }
    cuvil_put("\"isas\": [");
    for (int v = 0; v < engine->variant_count; v++) {
        cuvil_put(v ? ", " : "");
        cuvil_put_json_string(engine->variants[v].isa);
    }
    cuvil_put("], \"isa\": ");
    if (chosen) {
        cuvil_put_json_string(chosen->isa);
    } else {
        cuvil_put("null");
    }
    if (engine->device) {
        cuvil_put(", ");
        put_member("chip", engine->device->chip);
        cuvil_putf("\"device_bytes\": %lu", engine->device->memory_bytes);
    }
    cuvil_putf(", \"max_threads\": %d, \"steps\": [", cuvil_most_threads(engine));
    for (int s = 0; s < engine->step_count; s++) {
        cuvil_put(s ? ", {" : "{");
        put_member("kernel", shown->steps[s].kernel);
        cuvil_putf("\"items\": %d, \"node\": ", shown->steps[s].items);
        cuvil_put_json_string(shown->steps[s].node);
        cuvil_put("}");
    }
    cuvil_put("], ");
}

void cuvil_print_version(const cuvil_engine *engine, const char *isa) {
    const char *const fields[][2] = {
        {"model", engine->model},
        {"model_version", engine->model_version},
        {"arithmetic", engine->arithmetic},
        {"frozen_graph", engine->frozen_graph},
        {"config_digest", engine->config_digest},
        {"weights_digest", engine->weights_digest},
        {"target", engine->target},
    };
    size_t field_count = sizeof fields / sizeof fields[0];
    if (cuvil_json) {
        cuvil_put("{");
        for (size_t i = 0; i < field_count; i++) put_member(fields[i][0], fields[i][1]);
        cuvil_putf("\"weights_bytes\": %lu, \"arena_bytes\": %lu, \"lockstep\": %s, ", engine->weights_size, engine->arena_bytes,
                   engine->checker ? "true" : "false");
        if (&cuvil_sessions)
            cuvil_putf("\"sessions\": {\"inputs\": \"%s\", \"required\": %s, \"sync\": %s}, ", cuvil_sessions.inputs,
                       cuvil_sessions.required ? "true" : "false", cuvil_sessions.sync ? "true" : "false");
        else
            cuvil_put("\"sessions\": null, ");
        put_variants(engine, isa);
        put_symbols(engine);
        put_tensors_json("inputs", engine->inputs, engine->input_count, 0);
        cuvil_put(", ");
        put_tensors_json("outputs", engine->outputs, engine->output_count, 1);
        cuvil_put("}\n");
        return;
    }
    for (size_t i = 0; i < field_count; i++) cuvil_putf("%-15s %s\n", fields[i][0], fields[i][1]);
    cuvil_putf("%-15s %lu\n%-15s %lu\n", "weights_bytes", engine->weights_size, "arena_bytes", engine->arena_bytes);
    cuvil_putf("%-15s %s\n", "lockstep", engine->checker ? "yes" : "no");
    cuvil_putf("%-15s %s\n", "sessions", &cuvil_sessions ? cuvil_sessions.inputs : "none");
    if (engine->device) cuvil_putf("%-15s %lu\n", "device_bytes", engine->device->memory_bytes);
    put_variants(engine, isa);
    put_symbols(engine);
    put_tensors_text("input", engine->inputs, engine->input_count);
    put_tensors_text("output", engine->outputs, engine->output_count);
}

static const char *tensor_problem(const cuvil_tensor *tensors, int count, void *const *buffers) {
    if (count < 0 || count > CUVIL_MAX_TENSORS) return "the number of tensors";
    for (int i = 0; i < count; i++) {
        long product = 1;
        (void)cuvil_type_of(&tensors[i]); /* fails by itself for an unknown element type */
        if (tensors[i].rank < 0 || tensors[i].rank > CUVIL_MAX_RANK) return "a rank";
        for (int axis = 0; axis < tensors[i].rank; axis++) product *= tensors[i].shape[axis];
        if (product != tensors[i].count) return "an element count";
        if (!buffers[i] || (uintptr_t)buffers[i] % 64) return "the alignment of a buffer";
    }
    return NULL;
}

static void passed(const char *check, int first) {
    if (cuvil_json) {
        cuvil_putf("%s{\"check\": \"%s\", \"passed\": true}", first ? "{\"self_test\": \"passed\", \"checks\": [" : ", ", check);
    } else {
        cuvil_putf("%-15s passed\n", check);
    }
}

static void check_weights(const cuvil_engine *engine, const char *whose) {
    static const char prefix[] = "sha3-512:";
    const char *recorded = engine->weights_digest;
    char computed[129];
    cuvil_sha3 hash;
    cuvil_sha3_init(&hash);
    cuvil_sha3_update(&hash, engine->weights, engine->weights_size);
    cuvil_sha3_hex(&hash, computed);
    if (!strncmp(recorded, prefix, sizeof prefix - 1)) recorded += sizeof prefix - 1;
    if (strcmp(recorded, computed) != 0)
        cuvil_fail(CUVIL_FAILED, "weights-digest",
                   "self-test weights-digest failed: the SHA3-512 of the %s weights is %.16s... and %.16s... is recorded: "
                   "this file is damaged, install the engine again and verify it",
                   whose, computed, recorded);
}

void cuvil_self_test(const cuvil_engine *engine) {
    const char *check = "", *problem;
    check_weights(engine, "embedded");
    if (engine->checker) check_weights(engine->checker, "checker's");
    problem = tensor_problem(engine->inputs, engine->input_count, engine->input_buffers);
    if (!problem) problem = tensor_problem(engine->outputs, engine->output_count, engine->output_buffers);
    if (problem)
        cuvil_fail(CUVIL_FAILED, "interface", "self-test interface failed: %s does not fit the engine's description: this is a "
                   "defect of the compiler", problem);
    problem = cuvil_fp_problem(&check);
    if (problem)
        cuvil_fail(CUVIL_FAILED, check, "self-test %s failed: on this processor %s, so its results would not be the defined "
                   "ones: run the engine on another processor or emulator", check, problem);
    passed("weights-digest", 1);
    passed("interface", 0);
    passed("fp-rounding", 0);
    passed("fp-subnormals", 0);
    passed("fp-fma", 0);
    if (cuvil_json) cuvil_put("]}\n");
}
