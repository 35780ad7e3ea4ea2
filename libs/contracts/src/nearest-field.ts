import { z } from "zod";

/** The parts of a JSON Schema that lead to the names of fields. */
interface Node {
  readonly properties?: Readonly<Record<string, Node>> | undefined;
  readonly additionalProperties?: Node | boolean | undefined;
  readonly items?: Node | undefined;
  readonly anyOf?: readonly Node[] | undefined;
  readonly oneOf?: readonly Node[] | undefined;
  readonly allOf?: readonly Node[] | undefined;
}

/** Maximum edit distance of a name that is still taken for another. */
const MAX_DISTANCE = 2;

/** Minimum letters of a word that identifies a field; shorter ones, as `n`, only qualify. */
const MIN_WORD = 3;
/** Minimum letters of a prefix that is taken for its field. */
const MIN_BEGINNING = 4;

/** Without the global registry, whose ids would make references of schemas. */
const OPTIONS: z.core.ToJSONSchemaParams = {
  io: "input",
  unrepresentable: "any",
  metadata: z.registry<Record<string, unknown>>(),
};

const schemas = new WeakMap<z.ZodType, Node>();

/**
 * The field of the schema's object at a path that a wrong name probably meant; undefined if none is
 * near.
 */
export function nearestField(
  schema: z.ZodType,
  path: readonly PropertyKey[],
  name: string,
): string | undefined {
  // A field of exactly that name belongs to another branch of the union.
  const fields = fieldsAt(jsonSchemaOf(schema), path).filter((field) => field !== name);
  return nearestByLetters(fields, name) ?? nearestByWords(fields, name);
}

function nearestByLetters(fields: readonly string[], name: string): string | undefined {
  let nearest: string | undefined;
  // For a short name half might be wrong.
  let least = Math.min(MAX_DISTANCE, Math.floor((name.length - 1) / 2)) + 1;
  for (const field of fields) {
    const distance = distanceWithin(least, field, name);
    if (distance >= least) continue;
    nearest = field;
    least = distance;
  }
  return nearest;
}

/**
 * Matches words, as `hidden_sizes` for `hidden`, `entropy_coefficient` for `ent_coef` or `lr` for
 * `learning_rate`. The field with the most common words wins, then the one with the closest number
 * of words. Undefined on a tie.
 */
function nearestByWords(fields: readonly string[], name: string): string | undefined {
  const given = wordsOf(name);
  const [first, second] = [...new Set(fields)]
    .map((field) => ({ field, ...nearnessOf(given, wordsOf(field)) }))
    .filter(({ shared }) => shared > 0)
    .sort((left, right) => right.shared - left.shared || left.apart - right.apart);
  const isAlone = first?.shared !== second?.shared || first?.apart !== second?.apart;
  return isAlone ? first?.field : undefined;
}

/** Words in common, none if both have others, and the difference in number. */
function nearnessOf(given: readonly string[], field: readonly string[]) {
  const apart = Math.abs(given.length - field.length);
  if (given.length === 1 && apart > 0 && given[0] === field.map(([letter]) => letter).join("")) {
    return { shared: field.length, apart: 0 };
  }
  const longer = (words: readonly string[]) => words.filter(({ length }) => length >= MIN_WORD);
  const [few = [], many = []] = [longer(given), longer(field)].sort((a, b) => a.length - b.length);
  // Either may be abbreviated.
  const isAmong = (word: string) =>
    many.some((other) => other.startsWith(word) || word.startsWith(other));
  return { shared: few.every(isAmong) ? few.length : 0, apart };
}

/** Lower case, without a plural s. */
function wordsOf(name: string): string[] {
  const apart = name.replace(/([a-z])([A-Z])/g, "$1_$2").toLowerCase();
  return apart.split(/[^a-z0-9]+/).map((word) => word.replace(/s$/, ""));
}

function jsonSchemaOf(schema: z.ZodType): Node {
  const known = schemas.get(schema);
  if (known) return known;
  const made = z.toJSONSchema(schema, OPTIONS) as Node;
  schemas.set(schema, made);
  return made;
}

function fieldsAt(node: Node, path: readonly PropertyKey[]): string[] {
  const forms = [...(node.anyOf ?? []), ...(node.oneOf ?? []), ...(node.allOf ?? [])];
  const inForms = forms.flatMap((form) => fieldsAt(form, path));
  const [step, ...rest] = path;
  if (step === undefined) return [...Object.keys(node.properties ?? {}), ...inForms];
  const { additionalProperties: others } = node;
  const next =
    typeof step === "number"
      ? node.items
      : (node.properties?.[String(step)] ?? (typeof others === "object" ? others : undefined));
  return next ? [...fieldsAt(next, rest), ...inForms] : inForms;
}

/** A field's prefix counts as distance one; distances from `least` on are `least`. */
function distanceWithin(least: number, field: string, name: string): number {
  const isBeginning = name.length >= MIN_BEGINNING && field.startsWith(name);
  if (isBeginning && field !== name) return 1;
  return Math.abs(field.length - name.length) < least ? distanceOf(field, name) : least;
}

/** Levenshtein distance. */
function distanceOf(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, at) => at);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++) {
      const change = (row[j - 1] as number) + (left[i - 1] === right[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    row = next;
  }
  return row[right.length] as number;
}
