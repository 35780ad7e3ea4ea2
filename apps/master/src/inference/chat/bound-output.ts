/** Output tokens reserved per choice for a call without a limit. */
const DEFAULT_OUTPUT_TOKENS = 4096;

/**
 * The output limit of each choice. A key with a token limit gets one in any case, because an
 * unlimited call could exceed its reservation.
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
