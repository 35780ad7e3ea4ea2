import type { ResponseItem } from "@heddle/contracts/api/responses/items";

/** After this many counts the rest is taken as it is. */
const MAX_COUNTS = 8;
/** The tokens of an answer whose request sets no limit. */
const USUAL_ANSWER_TOKENS = 1024;

/** Where the rest of the items begins, and its length as JSON. */
interface Cut {
  readonly at: number;
  readonly length: number;
}

/** The tokens that a truncated prompt may have: at least half of the context. */
export function promptRoom(contextTokens: number, answerTokens = USUAL_ANSWER_TOKENS): number {
  return contextTokens - Math.min(answerTokens, Math.floor(contextTokens / 2));
}

/**
 * The items without the oldest of them, so that the prompt has at most `room` tokens. Where that
 * cannot be, as few as may be left: the engine decides.
 */
export async function truncated(
  items: readonly ResponseItem[],
  room: number,
  count: (items: readonly ResponseItem[]) => Promise<number>,
): Promise<readonly ResponseItem[]> {
  let [cut, ...cuts] = cutsOf(items);
  let rest = items;
  for (let counts = 1; counts <= MAX_COUNTS && cut && cuts.length > 0; counts++) {
    const tokens = await count(rest);
    if (tokens <= room) break;
    // Instructions, tools and the template have a part in it: each cut is deeper than the last.
    const most = cut.length * (1 - (counts * (tokens - room)) / tokens);
    const found = cuts.findIndex(({ length }) => length <= most);
    [cut, ...cuts] = cuts.slice(found);
    rest = after(items, cut);
  }
  return rest;
}

/** What is said once for the whole conversation stays. */
function after(items: readonly ResponseItem[], cut: Cut | undefined): readonly ResponseItem[] {
  return items.filter((item, at) => at >= (cut?.at ?? 0) || isRule(item));
}

/**
 * The first is no cut. Others are where a turn of the user begins, or within the last one. No
 * output is left without its call.
 */
function cutsOf(items: readonly ResponseItem[]): Cut[] {
  const lastTurn = items.findLastIndex(isTurn);
  const withoutCall = new Set<string>();
  const cuts: Cut[] = [];
  let length = 0;
  for (const [at, item] of [...items.entries()].reverse()) {
    if (!isRule(item)) length += JSON.stringify(item).length;
    if (item.type === "function_call_output") withoutCall.add(item.call_id);
    if (item.type === "function_call") withoutCall.delete(item.call_id);
    const begins = isTurn(item) || (at > lastTurn && item.type !== "reasoning" && !isRule(item));
    if (at === 0 || (begins && withoutCall.size === 0)) cuts.push({ at, length });
  }
  return cuts.reverse();
}

function isTurn(item: ResponseItem): boolean {
  return item.type === "message" && item.role === "user";
}

function isRule(item: ResponseItem): boolean {
  return item.type === "message" && (item.role === "system" || item.role === "developer");
}
