import { benchRandom } from "./statistics.ts";

/** Words that are one token each, with the space before them, in the vocabularies we measure. */
const words =
  "time year people way day man thing woman life child world school state family student group country problem hand part place case week company system program question work government number night point home water room mother area money story fact month lot right study book eye job word business issue side kind head house service friend father power hour game line end member law car city name team minute idea body back parent face level office door health person art war history party result change morning reason research girl guy moment air teacher force education".split(
    " ",
  );

/** Text of this many words; the same seed gives the same text. */
export function randomWords(count: number, seed: number): string {
  const random = benchRandom(seed);
  const pick = () => words[Math.floor(random() * words.length)]!;
  return Array.from({ length: count }, pick).join(" ");
}
