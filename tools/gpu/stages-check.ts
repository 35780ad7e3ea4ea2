import { largestDifference } from "@heddle/base/testing/largest-difference";
import { OPTIONS, StagedSession } from "@heddle/engines/shards/testing/staged-session";
import type { EngineSession } from "@heddle/engines/testing/engine-session";

const PROMPTS = 4;
/** The first run of a prompt computes it; the others find it in the cache. */
const RUNS = 3;
const TOKENS = 64;

/**
 * A model as two stages, each a process, on one GPU. Their log-probabilities may differ from the
 * whole model's by at most what repeated runs of that differ by.
 */
export async function checkStages(device: string) {
  const session = await StagedSession.open([3], undefined, { ...OPTIONS, device });
  try {
    let [repeats, stages] = [0, 0];
    for (let prompt = 0; prompt < PROMPTS; prompt++) {
      const whole = await runsOf(session.whole, prompt);
      const staged = await runsOf(session, prompt);
      for (const [run, scores] of whole.entries()) {
        repeats = Math.max(repeats, largestDifference([scores], [whole[0]!]));
        stages = Math.max(stages, largestDifference([staged[run]!], [scores]));
      }
    }
    const difference = { of_repeats: repeats, of_stages: stages };
    // A difference that is no number, or infinite, is none that repeated runs may have.
    if (!(Number.isFinite(repeats) && stages <= repeats)) {
      throw new Error(`stages differ from the whole by ${stages}, and its runs by ${repeats}`);
    }
    return { devices: [...session.stages.devices, session.engine.info.device], difference };
  } finally {
    await session.close();
  }
}

/** Indexed by run: the log-probabilities of the likeliest tokens at each place of the answer. */
async function runsOf(session: EngineSession, prompt: number): Promise<number[][]> {
  const runs: number[][] = [];
  for (let run = 0; run < RUNS; run++) {
    const { logprobs, error } = await session.ask({
      prompt: Array.from({ length: 40 }, (_, i) => 5 + ((i * 37 + prompt * 101) % 300)),
      maxTokens: TOKENS,
      ignoreEnd: true,
      topLogprobs: 3,
    });
    if (error) throw new Error(error.message);
    runs.push(
      logprobs[0]!.flatMap(({ logprob, top }) => [logprob, ...top.map((each) => each.logprob)]),
    );
  }
  return runs;
}
