/** Output reserved for a call that names no bound, per choice. */
const DEFAULT_OUTPUT_TOKENS = 4096;

/**
 * The output bound of each choice. A key with a limit on tokens gets one even where the request
 * names none: without a bound its calls could overspend what was reserved for them.
 */
export function boundOutput(
  tokensPerMinute: number | undefined,
  asked: number | undefined,
  promptTokens: number,
  choices: number,
): number | undefined {
  if (asked !== undefined || tokensPerMinute === undefined) return asked;
  const affordable = Math.floor((tokensPerMinute - promptTokens) / choices);
  return Math.max(1, Math.min(DEFAULT_OUTPUT_TOKENS, affordable));
}
