/** The parts of a comma-separated list, without spaces and empty parts. */
export function wordsOf(text: string): string[] {
  return text
    .split(",")
    .map((item) => item.trim())
    .filter(Boolean);
}
