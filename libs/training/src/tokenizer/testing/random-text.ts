import type { Random } from "@heddle/base/random";

/**
 * The parts of texts: words, numbers, contractions, spaces of all kinds, other scripts, invalid
 * UTF-8.
 */
const KINDS: readonly string[] = [
  ..."the a heddle weaves warp and weft don't we'll I'M he's they'd x'' '' 's 're".split(" "),
  ..."1 42 2026 ½ ² Ⅷ ٣ 3.14".split(" "),
  ..."é ß Ωmega привет שלום 你好 日本語 한국어 ไทย हिन्दी 🙂 👩‍👩‍👧 a\u0301 \ufeff \u200b".split(
    " ",
  ),
  ...'!? ... -- <|x|> { } => #### \\ " _ ~ € ™'.split(" "),
  " ",
  "  ",
  "     ",
  "\n",
  "\n\n",
  "\r\n",
  "\t",
  "\t\t ",
  "\u00a0",
  "\u2003\u3000",
  "\u0085",
  " \n",
  "\n ",
  " \t ",
];

/** A text of about `length` characters; whole code points only. */
export function randomText(random: Random, length: number): string {
  let text = "";
  while (text.length < length) text += KINDS[Math.floor(random() * KINDS.length)];
  return text;
}

/** The same as bytes, with invalid UTF-8 in it. */
export function textOfKinds(random: Random, length: number): Uint8Array {
  const text = new TextEncoder().encode(randomText(random, length));
  for (let i = 0; i < length / 20; i++) {
    text[Math.floor(random() * text.length)] = Math.floor(random() * 256);
  }
  return text;
}
