import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { toAppError } from "@heddle/base/errors";
import { checkEngine } from "./engine-check.ts";
import { gpusOf } from "./nvidia-smi.ts";
import { benchPeer } from "./peer.ts";
import { checkStages } from "./stages-check.ts";
import { checkTraining } from "./training-check.ts";

/**
 * Measures what runs only on an NVIDIA GPU: the engine beside llama-bench, two stages on one GPU,
 * and training on ONNX Runtime's CUDA provider. Prints one JSON on standard output; it needs no
 * network, as `npm run install:gpu` has installed the packages.
 */

const USAGE = `npm run check:gpu -- [--gpu INDEX] [--llama-bench PROGRAM] [--rehearse]
  --gpu INDEX           the GPU, as nvidia-smi counts (default: 0)
  --llama-bench PROGRAM a peer of the same llama.cpp version to compare decoding with
  --rehearse            run the same on the CPU with tiny shapes, which shows that the check works`;

/** No GPU: nothing was checked. */
const EXIT_NO_GPU = 3;

async function main(): Promise<number> {
  const flags = parseArgs({
    options: {
      gpu: { type: "string", default: "0" },
      "llama-bench": { type: "string" },
      rehearse: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  }).values;
  if (flags.help) {
    process.stdout.write(`${USAGE}\n`);
    return 0;
  }
  const gpus = await gpusOf();
  const gpu = gpus[Number(flags.gpu)];
  if (gpu === undefined && !flags.rehearse) {
    const found = gpus.length === 0 ? "nvidia-smi finds none" : `it has ${gpus.length}, from 0 on`;
    process.stderr.write(
      `check:gpu: no NVIDIA GPU ${flags.gpu} on this machine (${found}): nothing was checked.\n`,
    );
    return EXIT_NO_GPU;
  }
  const device = flags.rehearse ? "cpu" : flags.gpu;
  const directory = await mkdtemp(join(tmpdir(), "heddle-check-gpu-"));
  try {
    const modelPath = join(directory, "random.gguf");
    const engine = await part(() => checkEngine({ device, modelPath, isSmall: flags.rehearse }));
    const peer = await part(() => benchPeer(flags["llama-bench"], modelPath, device));
    const stages = await part(() => checkStages(device));
    const training = await part(() => checkTraining(flags.rehearse ? "cpu" : `cuda:${flags.gpu}`));
    const parts = [engine, peer, stages, training];
    const isSound = parts.every((result) => !("error" in result));
    const report = { rehearsal: flags.rehearse, gpu: gpu ?? null, passed: isSound };
    const results = { engine, llama_bench: peer, stages, training };
    const text = JSON.stringify({ ...report, ...results }, null, 2);
    process.stdout.write(`${text}\n`);
    return isSound ? 0 : 1;
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** One part's failure is its result; the others run. */
async function part<T extends object>(
  run: () => Promise<T>,
): Promise<T | { readonly error: string }> {
  try {
    return await run();
  } catch (error) {
    return { error: toAppError(error).message };
  }
}

process.exitCode = await main().catch((error) => {
  process.stderr.write(`check:gpu: ${error instanceof Error ? error.message : error}\n${USAGE}\n`);
  return 2;
});
