import { CharSet, DFA, type TransitionIterable } from "refa";
import { limited, type TextSet } from "./regular-text.ts";

/** A decimal number: `digits` / 10 ** `scale`. */
interface Decimal {
  readonly digits: bigint;
  readonly scale: number;
}

const LAST_CODE_POINT = 0x10ffff;
const [MINUS, POINT, ZERO, NINE] = [0x2d, 0x2e, 0x30, 0x39];
/** Remainders that are followed, for each place behind the point. */
const MAX_REMAINDERS = 10_000;

/** The number as it is written in decimal, however JavaScript writes it. */
function decimalOf(value: number): Decimal {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] =
    /^(-?)(\d+)(?:\.(\d+))?(?:e([-+]\d+))?$/.exec(String(value)) ?? [];
  const scale = fraction.length - Number(exponent);
  const digits = BigInt(`${sign}${whole}${fraction}`);
  return scale < 0 ? { digits: digits * 10n ** BigInt(-scale), scale: 0 } : { digits, scale };
}

/** Whether the number, as it is written in decimal, is a whole multiple of the step. */
export function isMultipleOf(value: number, step: number): boolean {
  const [a, b] = [decimalOf(value), decimalOf(step)];
  const scale = Math.max(a.scale, b.scale);
  const at = ({ digits, scale: own }: Decimal) => digits * 10n ** BigInt(scale - own);
  return at(a) % at(b) === 0n;
}

/** Digits so far: their remainder, and how many are behind the point (-1 before it). */
interface Place {
  readonly remainder: number;
  readonly behind: number;
}

/**
 * The decimal texts, without an exponent, of the multiples of a positive step; undefined where they are
 * too many to follow. What else a number's text must be is for another set to say.
 */
export function multiplesOf(step: number): TextSet | undefined {
  const { digits, scale } = decimalOf(step);
  if (digits * BigInt(scale + 2) > BigInt(MAX_REMAINDERS)) return undefined;
  const modulus = Number(digits);
  const places = new Map<string, Place>();
  const placeAt = (remainder: number, behind: number): Place => {
    const key = `${remainder},${behind}`;
    const place = places.get(key) ?? { remainder, behind };
    places.set(key, place);
    return place;
  };
  const after = (place: Place, digit: number): Place | undefined => {
    // Behind the last place that the step has, only zeros change nothing.
    if (place.behind === scale) return digit === 0 ? place : undefined;
    const remainder = (place.remainder * 10 + digit) % modulus;
    return placeAt(remainder, place.behind < 0 ? place.behind : place.behind + 1);
  };
  const transitions: TransitionIterable<Place> = {
    maxCharacter: LAST_CODE_POINT,
    transitionIterator: () => ({
      initial: placeAt(0, -1),
      isFinal: ({ remainder, behind }) => {
        const missing = BigInt(scale - Math.max(0, behind));
        return (BigInt(remainder) * 10n ** missing) % BigInt(modulus) === 0n;
      },
      getOut: (place) => {
        const out = new Map<Place, CharSet>();
        const add = (to: Place | undefined, character: number) => {
          if (to === undefined) return;
          const known = out.get(to) ?? CharSet.empty(LAST_CODE_POINT);
          out.set(to, known.union([{ min: character, max: character }]));
        };
        for (let digit = 0; ZERO + digit <= NINE; digit++) add(after(place, digit), ZERO + digit);
        if (place.behind < 0) {
          add(placeAt(place.remainder, 0), POINT);
          add(place, MINUS);
        }
        return out;
      },
    }),
  };
  return limited(() => {
    const texts = DFA.fromFA(transitions, new DFA.LimitedNodeFactory(2 * MAX_REMAINDERS));
    texts.minimize();
    return texts;
  });
}
