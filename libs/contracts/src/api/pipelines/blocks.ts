import { z } from "zod";
import { isImageReference } from "../../image-reference.ts";
import type { JobSpec } from "../job-spec.ts";
import { inputName, inputSource, type JobInput } from "./job-inputs.ts";

/** What flows between steps: files, by what they hold. `any` takes all of them. */
export const PORT_TYPES = ["any", "file", "dataset", "model", "metrics", "scores"] as const;
export type PortType = (typeof PORT_TYPES)[number];

export interface InputPort {
  readonly type: PortType;
  readonly required: boolean;
}

export interface OutputPort {
  readonly type: PortType;
  /** The artifact of the step's job. */
  readonly artifact: string;
}

/** What a block makes of a step: the part of its job's spec that says what runs. */
type BlockJob = Pick<JobSpec, "command" | "container_image" | "algorithm" | "config"> & {
  /** Further inputs than those from other steps. */
  readonly inputs?: readonly JobInput[];
};

/** A kind of step. Its version changes with what it leaves for the same config and inputs. */
export interface Block {
  readonly name: string;
  readonly version: number;
  readonly summary: string;
  readonly config: z.ZodObject;
  readonly inputs: Readonly<Record<string, InputPort>>;
  /** Takes further inputs under names that the step chooses. */
  readonly takesAny: boolean;
  readonly outputs: (config: never) => Readonly<Record<string, OutputPort>>;
  /** The resources of a step that gives none. */
  readonly resources?: JobSpec["resources"];
  readonly job: (config: never, inputs: ReadonlySet<string>) => BlockJob;
}

/** Checks that the parts of a block agree. */
function block<Config extends z.ZodObject>(given: {
  readonly name: string;
  readonly summary: string;
  readonly config: Config;
  readonly inputs?: Block["inputs"];
  readonly takesAny?: boolean;
  readonly outputs: (config: z.output<Config>) => Readonly<Record<string, OutputPort>>;
  readonly job: (config: z.output<Config>, inputs: ReadonlySet<string>) => BlockJob;
}): Block {
  return { version: 1, inputs: {}, takesAny: false, ...given } as Block;
}

const command = z
  .union([z.string().min(1), z.array(z.string()).min(1).max(1_024)])
  .describe("A shell command, or a program and its arguments.");
const ownOutputs = z
  .record(inputName, z.enum(PORT_TYPES))
  .default({})
  .describe("Files that it leaves in HEDDLE_ARTIFACT_DIR, by name, with their types.");
const sha256 = z
  .string()
  .regex(/^[0-9a-f]{64}$/, "expected 64 lower-case hexadecimal digits")
  .describe("The digest that the file must have.");

function namedOutputs({ outputs }: { readonly outputs: Readonly<Record<string, PortType>> }) {
  return Object.fromEntries(
    Object.entries(outputs).map(([name, type]) => [name, { type, artifact: name }]),
  );
}

const shell = block({
  name: "shell",
  summary: "Runs a command with its inputs in HEDDLE_INPUT_DIR.",
  config: z.strictObject({ command, outputs: ownOutputs }),
  takesAny: true,
  outputs: namedOutputs,
  job: (config) => ({ command: config.command }),
});

const container = block({
  name: "container",
  summary: "Runs a container of an image, with its inputs in HEDDLE_INPUT_DIR.",
  config: z.strictObject({
    image: z
      .string()
      .refine(isImageReference, "expected an image's reference")
      .describe("The image."),
    command: command.optional(),
    outputs: ownOutputs,
  }),
  takesAny: true,
  outputs: namedOutputs,
  job: ({ image, command: given }) => ({
    container_image: image,
    ...(given === undefined ? {} : { command: given }),
  }),
});

const train = block({
  name: "train",
  summary: "Trains by an algorithm; without `config.data`, on its input `data`.",
  config: z.strictObject({
    algorithm: z.string().min(1).max(63).describe("As of a training job, `weave` or `ppo`."),
    config: z.record(z.string(), z.unknown()).default({}).describe("As of a training job."),
  }),
  inputs: { data: { type: "dataset", required: false } },
  outputs: () => ({
    model: { type: "model", artifact: "model.gguf" },
    policy: { type: "file", artifact: "policy.onnx" },
    onnx: { type: "file", artifact: "model.onnx" },
    metrics: { type: "metrics", artifact: "metrics.jsonl" },
    lineage: { type: "file", artifact: "lineage.json" },
  }),
  job: ({ algorithm, config }, inputs) => ({
    algorithm,
    config: { ...config, ...(inputs.has("data") ? { data: "inputs/data" } : {}) } as never,
  }),
});

const REDUCERS = {
  last: "{ value = $1 }",
  first: "NR == 1 { value = $1 }",
  mean: "{ sum += $1; value = sum / NR }",
  least: "NR == 1 || $1 < value { value = $1 }",
  most: "NR == 1 || $1 > value { value = $1 }",
} as const;

const evaluate = block({
  name: "evaluate",
  summary: "Reduces a number of the metrics of a training to a score, for conditions.",
  config: z.strictObject({
    metric: z
      .string()
      .regex(/^[A-Za-z0-9_]{1,64}$/, "expected letters, digits and `_`")
      .default("loss")
      .describe("The number, as `loss` or `reward`."),
    reduce: z.enum(["last", "first", "mean", "least", "most"]).default("last"),
  }),
  inputs: { metrics: { type: "metrics", required: true } },
  outputs: () => ({ scores: { type: "scores", artifact: "scores.json" } }),
  job: ({ metric, reduce }) => {
    const values = `sed -n 's/.*"${metric}": *\\(-\\{0,1\\}[0-9][0-9.eE+-]*\\).*/\\1/p' "$HEDDLE_INPUT_DIR/metrics"`;
    const missing = `print "the metrics have no ${metric}" > "/dev/stderr"; exit 1`;
    const print = `END { if (NR == 0) { ${missing} } printf "{\\"${metric}\\": %.17g}\\n", value }`;
    return {
      command: `${values} | awk '${REDUCERS[reduce]} ${print}' > "$HEDDLE_ARTIFACT_DIR/scores.json"`,
    };
  },
});

const registerModel = block({
  name: "register-model",
  summary: "Registers a trained model under an id, from where it is served.",
  config: z.strictObject({
    id: z.string().min(1).max(200).describe("The model's id."),
    replace: z.boolean().default(false).describe("Replaces a model that a job has trained."),
    context_length: z.int().min(1).max(16_777_216).optional().describe("Its tokens of context."),
  }),
  inputs: { model: { type: "model", required: true } },
  outputs: () => ({ model: { type: "model", artifact: "model.gguf" } }),
  job: ({ id, replace, context_length }) => ({
    command: 'cp "$HEDDLE_INPUT_DIR/model" "$HEDDLE_ARTIFACT_DIR/model.gguf"',
    algorithm: "register-model",
    config: {
      register_as: id,
      replace_model: replace,
      ...(context_length === undefined ? {} : { context_length }),
    },
  }),
});

const datasetConfig = z
  .strictObject({
    source: inputSource
      .optional()
      .describe("A file of the network, from a host or bucket that the workers allow."),
    path: z.string().min(1).max(4_096).optional().describe("In its place: a file of the workers."),
    sha256,
  })
  .refine(({ source, path }) => (source === undefined) !== (path === undefined), {
    path: ["source"],
    message: "expected either `source` or `path`",
  });

const dataset = block({
  name: "dataset",
  summary: "A file with a known digest, from the network or from the workers' disks.",
  config: datasetConfig,
  outputs: () => ({ data: { type: "dataset", artifact: "data" } }),
  job: ({ source, path, sha256: digest }) => {
    const check = `echo "${digest}  $HEDDLE_ARTIFACT_DIR/data" | sha256sum -c -`;
    const from = path === undefined ? '"$HEDDLE_INPUT_DIR/data"' : quoted(path);
    const inputs = source === undefined ? [] : [{ name: "data", source, sha256: digest }];
    return { command: `cp ${from} "$HEDDLE_ARTIFACT_DIR/data" && ${check}`, inputs };
  },
});

const batchInference = block({
  name: "batch-inference",
  summary: "Runs the calls of a file, as of a batch; its secret_variables have API_KEY.",
  config: z.strictObject({
    endpoint: z
      .string()
      .max(500)
      .regex(/^https?:\/\/[^\s'"]+$/, "expected http://HOST:PORT or https://...")
      .describe("The cluster's address, as workers reach it."),
    calls: z
      .enum(["/v1/chat/completions", "/v1/completions", "/v1/embeddings"])
      .default("/v1/chat/completions")
      .describe("What every line calls."),
    window: z
      .string()
      .regex(/^[1-9]\d{0,2}[hd]$/, "expected a number of hours or days, as `24h`")
      .default("24h"),
    model: z
      .string()
      .max(200)
      .regex(/^[A-Za-z0-9][\w.:-]*$/, "expected a model's id")
      .optional()
      .describe("Waits, for an hour at most, until this model is ready."),
  }),
  inputs: { requests: { type: "any", required: true }, model: { type: "model", required: false } },
  outputs: () => ({ answers: { type: "dataset", artifact: "answers" } }),
  job: (config) => ({ command: batchScript(config) }),
});

interface BatchConfig {
  readonly endpoint: string;
  readonly calls: string;
  readonly window: string;
  readonly model?: string | undefined;
}

/** Uploads the calls, has them run as a batch, waits, and downloads the answers. */
function batchScript({ endpoint: given, calls, window, model }: BatchConfig): string {
  const endpoint = given.replace(/\/+$/, "");
  const isReady = `call '${endpoint}/api/v1/models/${model}' 2>/dev/null | grep -q '"status": *"ready"'`;
  const ready =
    model === undefined
      ? ""
      : `tries=0
until ${isReady}; do
  tries=$((tries + 1))
  test $tries -lt 3600 || { echo 'the model ${model} is not ready' >&2; exit 1; }
  sleep 1
done
`;
  const body = `{\\"input_file_id\\": \\"$file\\", \\"endpoint\\": \\"${calls}\\", \\"completion_window\\": \\"${window}\\"}`;
  return `set -eu
call() { printf 'Authorization: Bearer %s\\n' "$API_KEY" | curl -sS --fail-with-body --retry 5 --retry-connrefused -H @- "$@"; }
${ready}field() { tr -d '\\n' | sed -n 's/.*"'"$1"'": *"\\([^"]*\\)".*/\\1/p'; }
file=$(call -F purpose=batch -F "file=@$HEDDLE_INPUT_DIR/requests;filename=requests.jsonl" '${endpoint}/api/v1/files' | sed 's/,.*//' | field id)
batch=$(call -H 'Content-Type: application/json' -d "${body}" '${endpoint}/api/v1/batches' | sed 's/,.*//' | field id)
while :; do
  answer=$(call '${endpoint}/api/v1/batches/'"$batch")
  state=$(printf %s "$answer" | field status)
  case "$state" in
    completed) break ;;
    failed | expired | cancelled) echo "the batch $batch is $state: $answer" >&2; exit 1 ;;
  esac
  sleep 1
done
output=$(printf %s "$answer" | field output_file_id)
test -n "$output" || { echo "no call of the batch $batch succeeded: $answer" >&2; exit 1; }
call -o "$HEDDLE_ARTIFACT_DIR/answers" '${endpoint}/api/v1/files/'"$output"/content`;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The blocks of every cluster, by name. */
export const PIPELINE_BLOCKS: ReadonlyMap<string, Block> = new Map(
  [shell, container, train, evaluate, registerModel, dataset, batchInference].map((each) => [
    each.name,
    each,
  ]),
);

export function blockId({ name, version }: Pick<Block, "name" | "version">): string {
  return `${name}@${version}`;
}
