/** GPT-2's letter for each byte: printable bytes map to themselves, others move above U+0100. */
export function byteLetters(): string[] {
  let moved = 0;
  return Array.from({ length: 256 }, (_, byte) => {
    const printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    return String.fromCharCode(printable ? byte : 256 + moved++);
  });
}
