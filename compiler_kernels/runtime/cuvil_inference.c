/* One inference with the guards of the policy and its clinical logic: load, guard, infer, guard, decide, write. */
#include "cuvil_npy.h"
#include "cuvil_session.h"

#include <stdlib.h>

void cuvil_load_inputs(const cuvil_engine *engine, const char *const *input_path) {
    for (int i = 0; i < engine->input_count; i++)
        if (input_path[i]) cuvil_npy_load("input", input_path[i], &engine->inputs[i], engine->input_buffers[i]);
    const char *problem = engine->bind ? engine->bind() : NULL;
    if (problem) cuvil_fail(CUVIL_USAGE, NULL, "%s; resample or crop the array", problem);
}

const char *cuvil_guard_inputs(const cuvil_engine *engine, const char *const *input_path) {
    for (int i = 0; i < engine->input_count; i++) {
        const cuvil_tensor actual = cuvil_actual(&engine->inputs[i]);
        const char *problem = !input_path || input_path[i] ? cuvil_guard("input", &actual, engine->input_buffers[i]) : NULL;
        if (problem) return problem;
    }
    return NULL;
}

static void canonicalise_outputs(const cuvil_engine *engine) {
    for (int i = 0; i < engine->output_count; i++) {
        const cuvil_tensor actual = cuvil_actual(&engine->outputs[i]);
        cuvil_canonicalise(&actual, engine->output_buffers[i]);
    }
}

static const char *guard_outputs(const cuvil_engine *engine) {
    for (int i = 0; i < engine->output_count; i++) {
        const cuvil_tensor actual = cuvil_actual(&engine->outputs[i]);
        const char *problem = cuvil_guard("output", &actual, engine->output_buffers[i]);
        if (problem) return problem;
    }
    return NULL;
}

extern const cuvil_session_hooks cuvil_sessions __attribute__((weak)); /* no object: the policy has no audit.sessions */
static int inferred; /* the output buffers hold what the network computed */

/* Before anything is delivered; does nothing where no session is open. */
static void record(const cuvil_clinical *logic, int failure) {
    if (&cuvil_sessions) cuvil_sessions.append(logic, failure, inferred);
}

/* Whether the inference goes on: with a problem and without clinical logic the program ends here. */
static int goes_on(const cuvil_clinical *logic, int failure, const char *problem) {
    if (!problem) return 1;
    if (!logic) record(NULL, failure);
    if (!logic && failure == CUVIL_LOCKSTEP) cuvil_fail(CUVIL_REFUSED, "lockstep", "%s; no output was written", problem);
    if (!logic) cuvil_fail(CUVIL_REFUSED, failure == CUVIL_REFUSAL ? NULL : "guard", "%s", problem);
    logic->fail(failure, problem);
    return 0;
}

static const char *refusal(const cuvil_engine *engine) {
    return engine->refusal ? *engine->refusal : NULL;
}

/* With the inputs in their buffers. Returns at the first failure: the answer then says so. bare: outputs have no guards. */
static void infer_and_decide(const cuvil_engine *engine, const cuvil_clinical *logic, const char *const *input_path, int bare) {
    if (logic) logic->begin();
    if (&cuvil_sessions) cuvil_sessions.begin();
    if (!goes_on(logic, CUVIL_INPUT_GUARD, cuvil_guard_inputs(engine, input_path))) return;
    if (logic && !logic->before()) return;
    cuvil_infer();
    if (!goes_on(logic, CUVIL_LOCKSTEP, cuvil_lockstep_problem())) return; /* else a refusal could be the fault's */
    if (!goes_on(logic, CUVIL_REFUSAL, refusal(engine))) return;
    inferred = 1;
    canonicalise_outputs(engine);
    if (bare || !goes_on(logic, CUVIL_OUTPUT_GUARD, guard_outputs(engine))) return;
    if (logic) logic->after();
}

void cuvil_decide_given(const cuvil_engine *engine, unsigned pretended) {
    const cuvil_clinical *logic = engine->clinical;
    const char *refused = pretended & CUVIL_PRETEND_REFUSAL ? "a refusal of the engine is pretended" : NULL;
    const char *differs = pretended & CUVIL_PRETEND_LOCKSTEP ? "a difference in lockstep is pretended" : NULL;
    const char *input = pretended & CUVIL_PRETEND_INPUT_GUARD ? "a broken guard of an input is pretended" : NULL;
    const char *output = pretended & CUVIL_PRETEND_OUTPUT_GUARD ? "a broken guard of an output is pretended" : NULL;
    logic->begin();
    if (!goes_on(logic, CUVIL_INPUT_GUARD, input ? input : cuvil_guard_inputs(engine, NULL))) return;
    if (!logic->before()) return;
    if (!goes_on(logic, CUVIL_LOCKSTEP, differs)) return;
    if (!goes_on(logic, CUVIL_REFUSAL, refused)) return;
    canonicalise_outputs(engine);
    if (!goes_on(logic, CUVIL_OUTPUT_GUARD, output ? output : guard_outputs(engine))) return;
    logic->after();
}

static const cuvil_engine *answering; /* for answer_text */
static int source, files;
static char text[1 << 18];

void cuvil_register_inference(void) {
    cuvil_erase_register(text, sizeof text);
}

static const char *answer_text(void) {
    cuvil_capture(text, sizeof text);
    cuvil_put_answer(answering, source, files);
    cuvil_put("\n");
    cuvil_capture_end();
    return text;
}

static void put_outputs(const cuvil_engine *engine) {
    cuvil_put("{\"outputs\": [");
    for (int i = 0; i < (files ? engine->output_count : 0); i++) {
        cuvil_put(i ? ", {\"name\": " : "{\"name\": ");
        cuvil_put_json_string(engine->outputs[i].name);
        cuvil_put(", \"file\": ");
        cuvil_put_json_string(cuvil_output_file[i]);
        cuvil_putf(", \"sha3_512\": \"%s\", \"shape\": ", cuvil_output_digest[i]);
        const cuvil_tensor actual = cuvil_actual(&engine->outputs[i]);
        cuvil_put_shape(actual.shape, actual.rank, "[", "]}");
    }
    cuvil_put("]");
}

/* Writes what there is to write, and says how the inference ended. */
static void finish(const cuvil_engine *engine, const cuvil_clinical *logic, const char *directory) {
    answering = engine;
    files = source == CUVIL_FROM_INFERENCE && (!logic || logic->answer->status == CUVIL_DECIDED);
    if (logic && logic->answer->status == CUVIL_NO_ANSWER) cuvil_refuse_answer(engine);
    if (directory) cuvil_write_files(engine, directory, files, logic ? answer_text : NULL);
    if (cuvil_json) {
        put_outputs(engine);
        if (logic) cuvil_put(", \"answer\": ");
        if (logic) cuvil_put_answer(engine, source, files);
        cuvil_put(cuvil_also);
        cuvil_put("}\n");
    } else if (logic) {
        cuvil_put_answer_lines(engine);
    }
}

void cuvil_run(const cuvil_engine *engine, const char *const *input_path, const char *directory, int network_only) {
    const cuvil_clinical *logic = network_only ? NULL : engine->clinical;
    source = CUVIL_FROM_INFERENCE;
    cuvil_load_inputs(engine, input_path);
    infer_and_decide(engine, logic, input_path, network_only);
    record(logic, CUVIL_NO_FAILURE);
    finish(engine, logic, directory);
}

/* Outputs whose sizes follow from those of the inputs must have these. */
static void load_output(const cuvil_engine *engine, int i, const char *path) {
    const cuvil_tensor *tensor = &engine->outputs[i];
    const cuvil_tensor wanted = cuvil_actual(tensor);
    cuvil_npy_load("output", path, tensor, engine->output_buffers[i]);
    for (int axis = 0; tensor->axes && axis < tensor->rank; axis++)
        if (tensor->extents[axis] != wanted.shape[axis])
            cuvil_fail(CUVIL_USAGE, NULL, "%s has %ld elements on axis %d of output '%s', and these inputs give %ld: give the "
                       "output that belongs to the inputs", path, (long)tensor->extents[axis], axis, tensor->name,
                       wanted.shape[axis]);
}

void cuvil_decide(const cuvil_engine *engine, const char *const *input_path, const char *const *output_path,
                  const char *directory) {
    source = CUVIL_FROM_GIVEN;
    cuvil_load_inputs(engine, input_path);
    for (int i = 0; i < engine->output_count; i++) load_output(engine, i, output_path[i]);
    cuvil_decide_given(engine, 0);
    finish(engine, engine->clinical, directory);
}
