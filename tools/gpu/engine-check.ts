import { stat } from "node:fs/promises";
import { startLlamaEngine } from "@heddle/engines/llama/parent/llama-engine";
import { EngineSession } from "@heddle/engines/testing/engine-session";
import { idleShareDuring } from "./nvidia-smi.ts";
import { writeShapedModel } from "./shaped-model.ts";

interface EngineCheck {
  /** `cpu` or a GPU's index. */
  readonly device: string;
  readonly modelPath: string;
  readonly isSmall: boolean;
}

const STREAMS = [1, 16, 64];
const TOKENS = 128;
const CONTEXT_TOKENS = 512;

/** Loads a model of random weights and decodes with 1, 16 and 64 streams. */
export async function checkEngine({ device, modelPath, isSmall }: EngineCheck) {
  await writeShapedModel(modelPath, isSmall);
  const { size } = await stat(modelPath);
  const beganMs = performance.now();
  const session = await EngineSession.over((sink) =>
    startLlamaEngine({
      modelPath,
      options: { device, maxSequences: 64, contextTokens: CONTEXT_TOKENS },
      sink,
      child: { timeouts: { startMs: 300_000 } },
    }),
  );
  try {
    const loadMs = Math.round(performance.now() - beganMs);
    const { engine, device: used, parameters } = session.engine.info;
    const decode = [];
    for (const streams of STREAMS) decode.push(await decodeWith(session, device, streams));
    const { draftTokens = 0, residentBytes } = session.engine.load();
    return {
      engine,
      device: used,
      parameters,
      file_bytes: size,
      load_ms: loadMs,
      decode,
      draft_tokens: draftTokens,
      resident_bytes: residentBytes,
      sampling: "cpu: the engine has no backend sampling",
    };
  } finally {
    await session.close();
  }
}

async function decodeWith(session: EngineSession, device: string, streams: number) {
  const ask = (stream: number) => ({
    prompt: [5 + stream, 6, 7, 8],
    maxTokens: TOKENS,
    ignoreEnd: true,
    sampling: { temperature: 1, seed: stream },
  });
  const asks = Array.from({ length: streams }, (_, stream) => ask(stream));
  await Promise.all(asks.map((each) => session.ask({ ...each, maxTokens: 8 })));
  const began = performance.now();
  const { result, idle } = await idleShareDuring(device, () =>
    Promise.all(asks.map((each) => session.ask(each))),
  );
  const seconds = (performance.now() - began) / 1000;
  const failed = result.find(({ error }) => error !== undefined);
  if (failed?.error) throw new Error(`${streams} streams: ${failed.error.message}`);
  const tokens = result.reduce((sum, { usage }) => sum + (usage?.completionTokens ?? 0), 0);
  return { streams, tokens_per_s: Math.round((10 * tokens) / seconds) / 10, gpu_idle_share: idle };
}
