/* The answer of an inference as text: decisions.json ("cuvil-answer/1", docs/clinical.md), and lines for people. */
#include "cuvil_runtime.h"

#include <string.h>

const char *const cuvil_failure_name[CUVIL_FAILURES] = {
    "none", "input_guard", "output_guard", "safety_guard", "not_a_number", "refusal", "lockstep"};

static const char *const status_name[] = {"open", "decided", "fallback", "refused"};
static const char *const source_name[] = {"inference", "given"};

static void put_text(const char *key, const char *text) {
    cuvil_putf("\"%s\": ", key);
    cuvil_put_json_string(text);
    cuvil_put(", ");
}

static void put_number(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    cuvil_put("{\"value\": ");
    if ((bits >> 52 & 0x7FF) == 0x7FF) cuvil_put(bits << 12 ? "\"nan\"" : bits >> 63 ? "\"-inf\"" : "\"inf\"");
    else cuvil_putf("%.17g", value);
    cuvil_putf(", \"bits\": \"0x%016llx\"}", (unsigned long long)bits);
}

/* "NAME": true for every entry that was computed. */
static void put_truths(const char *key, int count, const char *const *names, const signed char *values) {
    int first = 1;
    cuvil_putf("\"%s\": {", key);
    for (int i = 0; i < count; i++) {
        if (values[i] < 0) continue;
        if (!first) cuvil_put(", ");
        cuvil_put_json_string(names[i]);
        cuvil_put(values[i] ? ": true" : ": false");
        first = 0;
    }
    cuvil_put("}");
}

static void put_quantities(const cuvil_clinical *logic) {
    int first = 1;
    cuvil_put("\"quantities\": {");
    for (int i = 0; i < logic->quantity_count; i++) {
        if (!logic->answer->quantities_known[i]) continue;
        if (!first) cuvil_put(", ");
        cuvil_put_json_string(logic->quantities[i]);
        cuvil_put(": ");
        put_number(logic->answer->quantities[i]);
        first = 0;
    }
    cuvil_put("}, ");
}

static const char *guard_name(const cuvil_clinical *logic) {
    return logic->answer->guard < 0 ? NULL : logic->guards[logic->answer->guard];
}

static void put_failure(const cuvil_clinical *logic) {
    const cuvil_answer *answer = logic->answer;
    cuvil_put("\"failure\": ");
    if (answer->failure == CUVIL_NO_FAILURE) {
        cuvil_put("null, ");
        return;
    }
    cuvil_putf("{\"kind\": \"%s\", \"guard\": ", cuvil_failure_name[answer->failure]);
    if (guard_name(logic)) cuvil_put_json_string(guard_name(logic));
    else cuvil_put("null");
    cuvil_put(", \"sentence\": ");
    cuvil_put_json_string(answer->sentence);
    cuvil_put("}, ");
}

void cuvil_put_answer(const cuvil_engine *engine, int source, int files) {
    const cuvil_clinical *logic = engine->clinical;
    const cuvil_answer *answer = logic->answer;
    cuvil_put("{\"format\": \"cuvil-answer/1\", ");
    put_text("model", engine->model);
    put_text("model_version", engine->model_version);
    put_text("config_digest", engine->config_digest);
    put_text("source", source_name[source]);
    put_text("status", status_name[answer->status]);
    put_failure(logic);
    put_text("message", answer->message);
    put_quantities(logic);
    put_truths("decisions", logic->decision_count, logic->decisions, answer->decisions);
    cuvil_put(", ");
    put_truths("guards", logic->guard_count, logic->guards, answer->guards);
    cuvil_put(", \"outputs\": [");
    for (int i = 0; i < (files ? engine->output_count : 0); i++) {
        cuvil_put(i ? ", {" : "{");
        put_text("name", engine->outputs[i].name);
        put_text("file", cuvil_output_file[i]);
        cuvil_putf("\"sha3_512\": \"%s\"}", cuvil_output_digest[i]);
    }
    cuvil_put("]}");
}

void cuvil_put_answer_lines(const cuvil_engine *engine) {
    const cuvil_clinical *logic = engine->clinical;
    const cuvil_answer *answer = logic->answer;
    cuvil_putf("status: %s\n", status_name[answer->status]);
    if (answer->sentence) cuvil_putf("failure: %s: %.900s\n", cuvil_failure_name[answer->failure], answer->sentence);
    if (answer->message[0]) cuvil_putf("message: %s\n", answer->message);
    for (int i = 0; i < logic->decision_count; i++)
        if (answer->decisions[i] >= 0) cuvil_putf("%s: %s\n", logic->decisions[i], answer->decisions[i] ? "yes" : "no");
}

_Noreturn void cuvil_refuse_answer(const cuvil_engine *engine) {
    const cuvil_answer *answer = engine->clinical->answer;
    const int tensor = answer->failure == CUVIL_INPUT_GUARD || answer->failure == CUVIL_OUTPUT_GUARD;
    cuvil_name_failure(cuvil_failure_name[answer->failure], guard_name(engine->clinical));
    const char *check = tensor ? "guard" : answer->failure == CUVIL_LOCKSTEP ? "lockstep" : NULL;
    cuvil_fail(CUVIL_REFUSED, check, "%s%s%s", answer->sentence, answer->message[0] ? "; " : "",
               answer->message);
}
