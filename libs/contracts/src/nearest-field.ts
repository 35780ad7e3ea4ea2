import { z } from "zod";

/** What of a JSON Schema leads to the names of fields. */
interface Node {
  readonly properties?: Readonly<Record<string, Node>> | undefined;
  readonly additionalProperties?: Node | boolean | undefined;
  readonly items?: Node | undefined;
  readonly anyOf?: readonly Node[] | undefined;
  readonly oneOf?: readonly Node[] | undefined;
  readonly allOf?: readonly Node[] | undefined;
}

/** Letters that may be wrong, left out or too many in a name that is still taken for another. */
const MAX_DISTANCE = 2;

/** Letters of a field's beginning that are taken for it. */
const MIN_BEGINNING = 4;

const schemas = new WeakMap<z.ZodType, Node>();

/**
 * The field of the schema's object at a path that was probably meant by a name which none has;
 * undefined where no name is near.
 */
export function nearestField(
  schema: z.ZodType,
  path: readonly PropertyKey[],
  name: string,
): string | undefined {
  let nearest: string | undefined;
  // Of a short name half might be wrong.
  let least = Math.min(MAX_DISTANCE, Math.floor((name.length - 1) / 2)) + 1;
  for (const field of fieldsAt(jsonSchemaOf(schema), path)) {
    const distance = distanceWithin(least, field, name);
    // A field of that very name belongs to another form of the object.
    if (distance === 0 || distance >= least) continue;
    nearest = field;
    least = distance;
  }
  return nearest;
}

function jsonSchemaOf(schema: z.ZodType): Node {
  const known = schemas.get(schema);
  if (known) return known;
  const made = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as Node;
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

/** A field's beginning is as near as one wrong letter; what is as far as `least`, or more, is `least`. */
function distanceWithin(least: number, field: string, name: string): number {
  const isBeginning = name.length >= MIN_BEGINNING && field.startsWith(name);
  if (isBeginning && field !== name) return 1;
  return Math.abs(field.length - name.length) < least ? distanceOf(field, name) : least;
}

/** Levenshtein's: letters to change, add or leave out. */
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
