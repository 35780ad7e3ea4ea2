import { parentPort } from "node:worker_threads";
import { SerialQueue } from "@heddle/base/async/serial-queue";
import { toAppError } from "@heddle/base/errors";
import { LogisticHeads } from "./logistic-heads.ts";
import { MODERATION_HEADS } from "./moderation-heads.ts";
import { piecesOf, TextFeatures } from "./text-features.ts";

/** The model's library ends the thread for a text without any. */
const VISIBLE = /[^\s\p{C}]/u;

/** Texts to score. */
export interface ModerationOrder {
  readonly id: number;
  readonly texts: readonly string[];
}

/** The scores of each text by category, or why there are none. */
export type ModerationResult =
  | { readonly id: number; readonly scores: number[][] }
  | { readonly id: number; readonly failure: string };

/** The thread in which moderation-local runs: a sentence takes some ten milliseconds. */
function serve(): void {
  if (parentPort === null) throw new Error("moderation-thread runs as a worker thread only");
  const port = parentPort;
  const heads = new LogisticHeads(MODERATION_HEADS);
  const opening = TextFeatures.open();
  opening.catch(() => undefined);
  const queue = new SerialQueue();
  port.on("message", ({ id, texts }: ModerationOrder) => {
    void queue.run(async () => port.postMessage(await result(id, texts, await settled())));
  });
  const settled = () => opening.catch((error: unknown) => toAppError(error).message);
  const result = async (
    id: number,
    texts: readonly string[],
    features: TextFeatures | string,
  ): Promise<ModerationResult> => {
    if (typeof features === "string") return { id, failure: features };
    const scores: number[][] = [];
    for (const text of texts) scores.push(await highest(heads, features, text));
    return { id, scores };
  };
}

/** A text has the highest score of its pieces. */
async function highest(heads: LogisticHeads, features: TextFeatures, text: string) {
  let best = MODERATION_HEADS.categories.map(() => 0);
  for (const piece of piecesOf(text)) {
    if (!VISIBLE.test(piece)) continue;
    const scores = heads.scores(await features.of(piece));
    best = scores.map((score, i) => Math.max(score, best[i] ?? 0));
  }
  return best;
}

serve();
