/* The engine as a program: arguments, then load, guard, infer, guard, write. */
#include "cuvil_npy.h"

#include "cuvil_session.h"

#include <stdlib.h>
#include <string.h>

static const cuvil_engine *const engine = &cuvil_engine_instance;
extern const cuvil_session_hooks cuvil_sessions __attribute__((weak)); /* no object: the policy has no audit.sessions */

static const char usage[] =
    "usage: ENGINE --input [NAME=]X.npy ... --output-dir DIR [--threads N] [--isa NAME] [--network-only] [--coverage FILE] [--json]\n"
    "       ENGINE --decide --input [NAME=]X.npy ... --output [NAME=]Y.npy ... [--output-dir DIR] [--coverage FILE]\n"
    "              [--json]\n"
    "       ENGINE --decide --vectors FILE [--coverage FILE]\n"
    "       ENGINE --bench N [--input [NAME=]X.npy ...] [--threads N] [--isa NAME] [--json]\n"
    "       ENGINE --self-test [--json] | --version [--isa NAME] [--json] | --help\n"
    "\n"
    "  --input      one .npy file (C order, the compiled type and shape) per input; NAME= may be left out when\n"
    "               the engine has one input\n"
    "  --output-dir receives one .npy file per output, all or none; its last component is created if missing\n"
    "               decisions.json is written beside them where the policy has decisions or safety guards\n"
    "  --network-only  writes the outputs without guards of outputs, safety guards, decisions and fallbacks: for verification\n"
    "  --decide     runs no inference: guards and decides on the inputs and outputs that are given\n"
    "  --output     one .npy file per output, as with --input\n"
    "  --vectors F  decides on every vector of a file (docs/clinical.md), one JSON object a line\n"
    "  --coverage F  records the probes of the clinical logic in the shared-memory file F (docs/coverage.md)\n"
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
    "            3 refused by a guard or fallback of the policy, by lockstep, or a run-time shape the engine is not compiled for; 4 processor without the needed instructions, or no GPU\n";

enum mode { MODE_NONE, MODE_RUN, MODE_VERSION, MODE_SELF_TEST, MODE_BENCH, MODE_DECIDE, MODE_HELP };

static const char *input_path[CUVIL_MAX_TENSORS], *output_path[CUVIL_MAX_TENSORS];
static const char *output_directory, *mode_option, *isa_name, *vectors, *coverage;
static int input_given, output_given, threads, network_only;
static cuvil_session_options session;
static const char *session_option; /* the first option given that needs --session */
static enum mode mode = MODE_NONE;
static long bench_runs;

/* "'image', 'age'", in a static buffer. */
static const char *names_of(const cuvil_tensor *tensors, int count) {
    static char names[1024];
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        size_t size = strlen(tensors[i].name);
        if (used + size + 8 > sizeof names) break;
        memcpy(names + used, i ? ", '" : "'", i ? 3 : 1);
        used += i ? 3 : 1;
        memcpy(names + used, tensors[i].name, size);
        used += size;
        names[used++] = '\'';
    }
    names[used] = 0;
    return names;
}

/* The inputs or the outputs, and the paths given for them; kind is "input" or "output". */
static void set_path(const char *kind, const cuvil_tensor *tensor, const char **path, const char *given) {
    if (*path) cuvil_fail(CUVIL_USAGE, NULL, "%s '%s' is given twice: give each %s once", kind, tensor->name, kind);
    if (!given[0])
        cuvil_fail(CUVIL_USAGE, NULL, "%s '%s' has an empty path: give the path of a .npy file", kind, tensor->name);
    *path = given;
}

static void add_file(const char *kind, const cuvil_tensor *tensors, int count, const char **paths, const char *argument) {
    for (int i = 0; i < count; i++) {
        size_t size = strlen(tensors[i].name);
        if (!strncmp(argument, tensors[i].name, size) && argument[size] == '=') {
            set_path(kind, &tensors[i], &paths[i], argument + size + 1);
            return;
        }
    }
    const char *equals = strchr(argument, '=');
    if (equals)
        cuvil_fail(CUVIL_USAGE, NULL, "this engine has no %s '%.*s': its %ss are %s (a file name that contains '=' needs "
                   "NAME= in front)", kind, (int)(equals - argument), argument, kind, names_of(tensors, count));
    if (count != 1)
        cuvil_fail(CUVIL_USAGE, NULL, "--%s %s does not say which %s it is: write NAME=%s, where NAME is one of %s", kind,
                   argument, kind, argument, names_of(tensors, count));
    set_path(kind, &tensors[0], &paths[0], argument);
}

static void need_all(const char *kind, const cuvil_tensor *tensors, int count, const char **paths) {
    for (int i = 0; i < count; i++)
        if (!paths[i])
            cuvil_fail(CUVIL_USAGE, NULL, "%s '%s' is missing: add --%s %s=X.npy", kind, tensors[i].name, kind, tensors[i].name);
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

static void check_session(void) {
    if (mode == MODE_RUN && &cuvil_sessions && cuvil_sessions.required && !session_option && !network_only)
        cuvil_fail(CUVIL_REFUSED, "session", "the policy requires a record of every inference (audit.sessions): give --session and "
                   "the folder of an archive");
    if (!session_option) return;
    if (mode != MODE_RUN)
        cuvil_fail(CUVIL_USAGE, NULL, "%s runs no inference that is recorded: leave out %s", mode_option, session_option);
    if (!session.folder) cuvil_fail(CUVIL_USAGE, NULL, "%s needs --session: say where the archive is", session_option);
    if (!&cuvil_sessions)
        cuvil_fail(CUVIL_USAGE, NULL, "this engine keeps no records: build it with audit.sessions in its policy, or leave out --session");
    if (network_only) cuvil_fail(CUVIL_USAGE, NULL, "--network-only decides nothing and is not recorded: leave out --session");
}

static void open_session(void) {
    if (!session.folder) return;
    if (!session.traceparent) session.traceparent = getenv("TRACEPARENT");
    if (!session.tracestate && session.traceparent && session.traceparent[0]) session.tracestate = getenv("TRACESTATE");
    if (session.subject) session.salt = getenv("CUVIL_SESSION_SALT");
    cuvil_sessions.open(&session);
}

static void parse_arguments(int count, char **arguments) {
    const char *value;
    for (int at = 1; at < count; at++)
        if (!strcmp(arguments[at], "--json")) cuvil_json = 1; /* first, so that every error below honours it */
    for (int at = 1; at < count; at++) {
        if (!strcmp(arguments[at], "--json")) continue;
        if (!strcmp(arguments[at], "--network-only")) {
            network_only = 1;
            continue;
        }
        if (!strcmp(arguments[at], "--version")) {
            set_mode(MODE_VERSION, "--version");
        } else if (!strcmp(arguments[at], "--self-test")) {
            set_mode(MODE_SELF_TEST, "--self-test");
        } else if (!strcmp(arguments[at], "--decide")) {
            set_mode(MODE_DECIDE, "--decide");
        } else if (!strcmp(arguments[at], "--help") || !strcmp(arguments[at], "-h")) {
            set_mode(MODE_HELP, "--help");
        } else if ((value = value_of("--bench", count, arguments, &at))) {
            set_mode(MODE_BENCH, "--bench");
            set_runs(value);
        } else if ((value = value_of("--input", count, arguments, &at))) {
            add_file("input", engine->inputs, engine->input_count, input_path, value);
            input_given = 1;
        } else if ((value = value_of("--output", count, arguments, &at))) {
            add_file("output", engine->outputs, engine->output_count, output_path, value);
            output_given = 1;
        } else if ((value = value_of("--vectors", count, arguments, &at))) {
            if (vectors) cuvil_fail(CUVIL_USAGE, NULL, "--vectors is given twice: give it once");
            vectors = value;
        } else if ((value = value_of("--coverage", count, arguments, &at))) {
            if (coverage) cuvil_fail(CUVIL_USAGE, NULL, "--coverage is given twice: give it once");
            if (!value[0]) cuvil_fail(CUVIL_USAGE, NULL, "--coverage is empty: give the path of a file");
            coverage = value;
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
    const int runs = mode == MODE_RUN || mode == MODE_BENCH;
    if (mode == MODE_NONE)
        cuvil_fail(CUVIL_USAGE, NULL, "nothing to do: give --input and --output-dir, or see --help");
    if ((output_given || vectors) && mode != MODE_DECIDE)
        cuvil_fail(CUVIL_USAGE, NULL, "%s is for --decide: add it, or leave out %s", output_given ? "--output" : "--vectors",
                   output_given ? "--output" : "--vectors");
    if (output_directory && mode != MODE_RUN && mode != MODE_DECIDE)
        cuvil_fail(CUVIL_USAGE, NULL, "%s writes no output: leave out --output-dir", mode_option);
    if (input_given && !runs && mode != MODE_DECIDE)
        cuvil_fail(CUVIL_USAGE, NULL, "%s reads no input: leave out --input", mode_option);
    if (threads && !runs) cuvil_fail(CUVIL_USAGE, NULL, "%s runs no inference: leave out --threads", mode_option);
    if (isa_name && !runs && mode != MODE_VERSION)
        cuvil_fail(CUVIL_USAGE, NULL, "%s runs no inference: leave out --isa", mode_option);
    check_session();
    if (network_only && mode != MODE_RUN)
        cuvil_fail(CUVIL_USAGE, NULL, "%s writes no output of the network: leave out --network-only", mode_option);
    if (mode == MODE_DECIDE && !engine->clinical)
        cuvil_fail(CUVIL_USAGE, NULL, "this engine decides nothing: its policy has no decisions and no safety guards");
    if (coverage && mode != MODE_RUN && mode != MODE_DECIDE)
        cuvil_fail(CUVIL_USAGE, NULL, "%s decides nothing: leave out --coverage", mode_option);
    if (coverage && network_only)
        cuvil_fail(CUVIL_USAGE, NULL, "--network-only passes no probe: leave out --coverage");
    if (coverage && !(engine->clinical && engine->clinical->ring))
        cuvil_fail(CUVIL_USAGE, NULL, "this engine has no probes: build it with a section coverage in its policy, or leave out "
                   "--coverage");
    if (vectors && (input_given || output_given || output_directory))
        cuvil_fail(CUVIL_USAGE, NULL, "--vectors holds inputs and outputs: leave out --input, --output and --output-dir");
    if (vectors || (mode != MODE_RUN && mode != MODE_DECIDE)) return;
    need_all("input", engine->inputs, engine->input_count, input_path);
    if (mode == MODE_DECIDE) need_all("output", engine->outputs, engine->output_count, output_path);
    if (mode == MODE_RUN && !output_directory)
        cuvil_fail(CUVIL_USAGE, NULL, "--output-dir is missing: say where the outputs go");
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
    if (mode == MODE_RUN || mode == MODE_BENCH || mode == MODE_DECIDE) cuvil_wipe_at_exit(__builtin_frame_address(0));
    if (mode == MODE_RUN || mode == MODE_BENCH) cuvil_start(engine, threads ? threads : 1, isa_name);
    if (mode == MODE_BENCH) {
        cuvil_load_inputs(engine, input_path);
        const char *problem = cuvil_guard_inputs(engine, input_path);
        if (problem) cuvil_fail(CUVIL_REFUSED, "guard", "%s", problem);
        cuvil_bench(engine, bench_runs);
    }
    if (coverage) cuvil_cover_open(engine, coverage);
    if (mode == MODE_RUN) open_session();
    if (mode == MODE_RUN) cuvil_run(engine, input_path, output_directory, network_only);
    if (mode == MODE_DECIDE && vectors) cuvil_decide_vectors(engine, vectors);
    else if (mode == MODE_DECIDE) cuvil_decide(engine, input_path, output_path, output_directory);
    cuvil_flush();
    cuvil_exit(CUVIL_DONE);
}
