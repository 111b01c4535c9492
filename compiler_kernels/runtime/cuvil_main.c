/* The engine as a program: arguments, then load, guard, infer, guard, write. */
#include "cuvil_npy.h"
#include "cuvil_session.h"

#include <stdlib.h>
#include <string.h>

static const cuvil_engine *const engine = &cuvil_engine_instance;
extern const cuvil_session_hooks cuvil_sessions __attribute__((weak)); /* no object: the policy has no audit.sessions */

static const char usage[] =
    "usage: ENGINE --input [NAME=]X.npy ... --output-dir DIR [--threads N] [--isa NAME] [--json]\n"
    "       ENGINE --bench N [--input [NAME=]X.npy ...] [--threads N] [--isa NAME] [--json]\n"
    "       ENGINE --self-test [--json] | --version [--isa NAME] [--json] | --help\n"
    "\n"
    "  --input      one .npy file (C order, the compiled type and shape) per input; NAME= may be left out when\n"
    "               the engine has one input\n"
    "  --output-dir receives one .npy file per output, all or none; its last component is created if missing\n"
    "  --bench N    times N runs (1 to 100000) without guards, after one that is not counted; inputs not given are zero\n"
    "  --threads N  computes with N threads (1 if not given); the result has the same bits for every N\n"
    "  --isa NAME   uses the kernels for this instruction set instead of the best one the processor supports;\n"
    "               --version lists them\n"
    "  --session DIR  appends the record of this inference to the archive DIR, if the policy has audit.sessions; with it:\n"
    "               --subject TOKEN (32 hex digits), --kept (the host keeps the inputs), --traceparent and --tracestate (W3C\n"
    "               Trace Context; TRACEPARENT and TRACESTATE of the environment if not given)\n"
    "  --self-test  checks the embedded weights and the floating-point unit\n"
    "  --version    prints what was compiled; with --json also the kernel of every step\n"
    "  --json       prints one JSON object on standard output, also for an error\n"
    "\n"
    "exit codes: 0 done; 1 self-test failed; 2 usage, unreadable file, wrong shape or dtype, unwritable output;\n"
    "            3 refused by a guard of the policy, by lockstep, or a run-time shape the engine is not compiled for; 4 processor without the needed instructions\n";

enum mode { MODE_NONE, MODE_RUN, MODE_VERSION, MODE_SELF_TEST, MODE_BENCH, MODE_HELP };

static const char *input_path[CUVIL_MAX_TENSORS];
static const char *output_directory, *mode_option, *isa_name;
static int input_given, threads;
static cuvil_session_options session;
static const char *session_option; /* the first option given that needs --session */
static int inferred;
static enum mode mode = MODE_NONE;
static long bench_runs;

/* "'image', 'age'", in a static buffer. */
static const char *input_names(void) {
    static char names[1024];
    size_t used = 0;
    for (int i = 0; i < engine->input_count; i++) {
        size_t size = strlen(engine->inputs[i].name);
        if (used + size + 8 > sizeof names) break;
        memcpy(names + used, i ? ", '" : "'", i ? 3 : 1);
        used += i ? 3 : 1;
        memcpy(names + used, engine->inputs[i].name, size);
        used += size;
        names[used++] = '\'';
    }
    names[used] = 0;
    return names;
}

static void set_input(int i, const char *path) {
    if (input_path[i])
        cuvil_fail(CUVIL_USAGE, NULL, "input '%s' is given twice: give each input once", engine->inputs[i].name);
    if (!path[0]) cuvil_fail(CUVIL_USAGE, NULL, "input '%s' has an empty path: give the path of a .npy file", engine->inputs[i].name);
    input_path[i] = path;
}

static void add_input(const char *argument) {
    for (int i = 0; i < engine->input_count; i++) {
        size_t size = strlen(engine->inputs[i].name);
        if (!strncmp(argument, engine->inputs[i].name, size) && argument[size] == '=') {
            set_input(i, argument + size + 1);
            return;
        }
    }
    const char *equals = strchr(argument, '=');
    if (equals)
        cuvil_fail(CUVIL_USAGE, NULL, "this engine has no input '%.*s': its inputs are %s (a file name that contains '=' needs "
                   "NAME= in front)", (int)(equals - argument), argument, input_names());
    if (engine->input_count != 1)
        cuvil_fail(CUVIL_USAGE, NULL, "--input %s does not say which input it is: write NAME=%s, where NAME is one of %s", argument,
                   argument, input_names());
    set_input(0, argument);
}

static void set_mode(enum mode wanted, const char *option) {
    if (mode != MODE_NONE)
        cuvil_fail(CUVIL_USAGE, NULL, "%s and %s can not be given together: choose one", mode_option, option);
    mode = wanted;
    mode_option = option;
}

static void set_runs(const char *text) {
    char *end;
    bench_runs = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : 0;
    if (bench_runs < 1 || bench_runs > CUVIL_BENCH_MAX || *end)
        cuvil_fail(CUVIL_USAGE, NULL, "--bench takes a number of runs from 1 to %d, not '%s'", CUVIL_BENCH_MAX, text);
}

static void set_threads(const char *text) {
    const int most = cuvil_most_threads(engine);
    char *end;
    const long number = text[0] >= '0' && text[0] <= '9' ? strtol(text, &end, 10) : 0;
    if (threads) cuvil_fail(CUVIL_USAGE, NULL, "--threads is given twice: give it once");
    if (number < 1 || number > most || *end)
        cuvil_fail(CUVIL_USAGE, NULL, "--threads takes a number from 1 to %d, not '%s'", most, text);
    threads = (int)number;
}

/* The value of an option, from "--option=value" or the next argument; NULL when argument is another option. */
static const char *value_of(const char *option, int count, char **arguments, int *at) {
    size_t size = strlen(option);
    const char *argument = arguments[*at];
    if (strncmp(argument, option, size) != 0 || (argument[size] && argument[size] != '=')) return NULL;
    if (argument[size] == '=') return argument + size + 1;
    if (*at + 1 >= count) cuvil_fail(CUVIL_USAGE, NULL, "%s needs a value: see --help", option);
    return arguments[++*at];
}

/* Whether this argument is an option of sessions, which it then takes. */
static int take_session_option(int count, char **arguments, int *at) {
    static const struct { const char *name, **place; } options[] = {
        {"--session", &session.folder},         {"--subject", &session.subject},
        {"--traceparent", &session.traceparent}, {"--tracestate", &session.tracestate}};
    if (!strcmp(arguments[*at], "--kept")) {
        session.kept = 1;
        session_option = "--kept";
        return 1;
    }
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        const char *value = value_of(options[i].name, count, arguments, at);
        if (!value) continue;
        if (*options[i].place) cuvil_fail(CUVIL_USAGE, NULL, "%s is given twice: give it once", options[i].name);
        if (!value[0]) cuvil_fail(CUVIL_USAGE, NULL, "%s is empty: give it a value or leave it out", options[i].name);
        *options[i].place = value;
        session_option = options[i].name;
        return 1;
    }
    return 0;
}

static void parse_arguments(int count, char **arguments) {
    const char *value;
    for (int at = 1; at < count; at++)
        if (!strcmp(arguments[at], "--json")) cuvil_json = 1; /* first, so that every error below honours it */
    for (int at = 1; at < count; at++) {
        if (!strcmp(arguments[at], "--json")) continue;
        if (!strcmp(arguments[at], "--version")) {
            set_mode(MODE_VERSION, "--version");
        } else if (!strcmp(arguments[at], "--self-test")) {
            set_mode(MODE_SELF_TEST, "--self-test");
        } else if (!strcmp(arguments[at], "--help") || !strcmp(arguments[at], "-h")) {
            set_mode(MODE_HELP, "--help");
        } else if ((value = value_of("--bench", count, arguments, &at))) {
            set_mode(MODE_BENCH, "--bench");
            set_runs(value);
        } else if ((value = value_of("--input", count, arguments, &at))) {
            add_input(value);
            input_given = 1;
        } else if ((value = value_of("--threads", count, arguments, &at))) {
            set_threads(value);
        } else if ((value = value_of("--isa", count, arguments, &at))) {
            if (isa_name) cuvil_fail(CUVIL_USAGE, NULL, "--isa is given twice: give it once");
            isa_name = value;
        } else if (take_session_option(count, arguments, &at)) {
            continue;
        } else if ((value = value_of("--output-dir", count, arguments, &at))) {
            if (output_directory) cuvil_fail(CUVIL_USAGE, NULL, "--output-dir is given twice: give it once");
            if (!value[0]) cuvil_fail(CUVIL_USAGE, NULL, "--output-dir is empty: give the path of a directory");
            output_directory = value;
        } else {
            cuvil_fail(CUVIL_USAGE, NULL, "unknown argument '%s': see --help", arguments[at]);
        }
    }
}

static void check_arguments(void) {
    if (mode == MODE_NONE && (input_given || output_directory)) mode = MODE_RUN;
    if (mode == MODE_NONE)
        cuvil_fail(CUVIL_USAGE, NULL, "nothing to do: give --input and --output-dir, or see --help");
    if (output_directory && mode != MODE_RUN)
        cuvil_fail(CUVIL_USAGE, NULL, "%s writes no output: leave out --output-dir", mode_option);
    if (input_given && mode != MODE_RUN && mode != MODE_BENCH)
        cuvil_fail(CUVIL_USAGE, NULL, "%s reads no input: leave out --input", mode_option);
    if (threads && mode != MODE_RUN && mode != MODE_BENCH)
        cuvil_fail(CUVIL_USAGE, NULL, "%s runs no inference: leave out --threads", mode_option);
    if (isa_name && (mode == MODE_SELF_TEST || mode == MODE_HELP))
        cuvil_fail(CUVIL_USAGE, NULL, "%s runs no inference: leave out --isa", mode_option);
    if (session_option && mode != MODE_RUN)
        cuvil_fail(CUVIL_USAGE, NULL, "%s runs no inference that is recorded: leave out %s", mode_option, session_option);
    if (session_option && !session.folder)
        cuvil_fail(CUVIL_USAGE, NULL, "%s needs --session: say where the archive is", session_option);
    if (session_option && !&cuvil_sessions)
        cuvil_fail(CUVIL_USAGE, NULL, "this engine keeps no records: build it with audit.sessions in its policy, or leave out --session");
    if (mode != MODE_RUN) return;
    for (int i = 0; i < engine->input_count; i++)
        if (!input_path[i])
            cuvil_fail(CUVIL_USAGE, NULL, "input '%s' is missing: add --input %s=X.npy", engine->inputs[i].name,
                       engine->inputs[i].name);
    if (!output_directory) cuvil_fail(CUVIL_USAGE, NULL, "--output-dir is missing: say where the outputs go");
}

static void record(const char *status, const char *failure, const char *guard) {
    const cuvil_session_result result = {status, failure, guard, cuvil_variant_in_use()->isa, cuvil_threads_in_use(), inferred};
    cuvil_before_failure = NULL;
    if (session.folder) cuvil_sessions.append(&result);
}

/* An inference that is refused is recorded too; wrong usage and damaged files are no inference. */
static void record_refusal(int code, const char *check) {
    if (code != CUVIL_REFUSED) return;
    const int guard = check && !strcmp(check, "guard");
    record("refused", guard ? inferred ? "output_guard" : "input_guard" : check ? check : "refusal", NULL);
}

static void open_session(void) {
    if (!session.folder) return;
    if (!session.traceparent) session.traceparent = getenv("TRACEPARENT");
    if (!session.tracestate && session.traceparent && session.traceparent[0]) session.tracestate = getenv("TRACESTATE");
    if (session.subject) session.salt = getenv("CUVIL_SESSION_SALT");
    cuvil_sessions.open(&session);
}

static void load_inputs(void) {
    for (int i = 0; i < engine->input_count; i++) {
        if (!input_path[i]) continue;
        cuvil_npy_load(input_path[i], &engine->inputs[i], engine->input_buffers[i]);
    }
    const char *problem = engine->bind ? engine->bind() : NULL;
    if (problem) cuvil_fail(CUVIL_USAGE, NULL, "%s; resample or crop the array", problem);
    if (session.folder) cuvil_before_failure = record_refusal; /* from here on it is an inference */
    for (int i = 0; i < engine->input_count; i++) {
        if (!input_path[i]) continue;
        const cuvil_tensor actual = cuvil_actual(&engine->inputs[i]);
        cuvil_guard("input", &actual, engine->input_buffers[i]);
    }
}

static void run(void) {
    open_session();
    load_inputs();
    cuvil_infer();
    inferred = 1;
    if (cuvil_lockstep_problem())
        cuvil_fail(CUVIL_REFUSED, "lockstep", "%s; no output was written", cuvil_lockstep_problem());
    if (engine->refusal && *engine->refusal) cuvil_fail(CUVIL_REFUSED, NULL, "%s", *engine->refusal);
    for (int i = 0; i < engine->output_count; i++) {
        const cuvil_tensor actual = cuvil_actual(&engine->outputs[i]);
        cuvil_canonicalise(&actual, engine->output_buffers[i]);
        cuvil_guard("output", &actual, engine->output_buffers[i]);
    }
    record("computed", NULL, NULL);
    cuvil_write_outputs(engine, output_directory);
    if (!cuvil_json) return;
    cuvil_put("{\"outputs\": [");
    for (int i = 0; i < engine->output_count; i++) {
        cuvil_put(i ? ", {\"name\": " : "{\"name\": ");
        cuvil_put_json_string(engine->outputs[i].name);
        cuvil_put(", \"file\": ");
        cuvil_put_json_string(cuvil_output_file[i]);
        cuvil_putf(", \"sha3_512\": \"%s\", \"shape\": ", cuvil_output_digest[i]);
        const cuvil_tensor actual = cuvil_actual(&engine->outputs[i]);
        cuvil_put_shape(actual.shape, actual.rank, "[", "]}");
    }
    cuvil_put("]");
    cuvil_put(cuvil_also);
    cuvil_put("}\n");
}

int main(int count, char **arguments) {
    if (engine->input_count > CUVIL_MAX_TENSORS || engine->output_count > CUVIL_MAX_TENSORS)
        cuvil_fail(CUVIL_UNSUPPORTED, NULL, "this engine has %d inputs and %d outputs and its runtime handles %d of each: this "
                   "is a defect of the compiler", engine->input_count, engine->output_count, CUVIL_MAX_TENSORS);
    parse_arguments(count, arguments);
    check_arguments();
    cuvil_output_names(engine);
    if (mode != MODE_VERSION && mode != MODE_HELP) cuvil_require_cpu();
    if (mode == MODE_HELP) cuvil_put(usage);
    if (mode == MODE_VERSION) cuvil_print_version(engine, isa_name);
    if (mode == MODE_SELF_TEST) cuvil_self_test(engine);
    if (mode == MODE_RUN || mode == MODE_BENCH) cuvil_wipe_at_exit(__builtin_frame_address(0));
    if (mode == MODE_RUN || mode == MODE_BENCH) cuvil_start(engine, threads ? threads : 1, isa_name);
    if (mode == MODE_BENCH) {
        load_inputs();
        cuvil_bench(bench_runs);
    }
    if (mode == MODE_RUN) run();
    cuvil_flush();
    cuvil_exit(CUVIL_DONE);
}
