/** What becomes of a schema: answers that fit it, or a 400 that names this place in it. */
type Outcome = "valid" | `#${string}`;

export interface HostileSchema {
  readonly name: string;
  readonly outcome: Outcome;
  readonly json: string;
}

function rows(area: string, entries: Record<string, readonly [Outcome, unknown]>): HostileSchema[] {
  return Object.entries(entries).map(([name, [outcome, schema]]) => ({
    name: `${area}: ${name}`,
    outcome,
    json: JSON.stringify(schema),
  }));
}

const object = (properties: object, more: object = {}) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
  ...more,
});
/** The linter takes an object with it for a promise. */
const THEN = "then";
/** In an object, as tools and most models want it. */
const a = (schema: unknown, more: object = {}) => object({ a: schema }, more);
const nested = (levels: number, inner: object): object =>
  levels === 0 ? inner : a(nested(levels - 1, inner));
const texts = (count: number) => Array.from({ length: count }, (_, i) => `value ${i}`);

const REFERENCES = rows("references", {
  "a linked list": [
    "valid",
    {
      ...a({ $ref: "#/$defs/node" }),
      $defs: {
        node: object({
          v: { type: "boolean" },
          next: { anyOf: [{ $ref: "#/$defs/node" }, { type: "null" }] },
        }),
      },
    },
  ],
  "a tree of the root": [
    "valid",
    object({ n: { enum: [1] }, kids: { type: "array", items: { $ref: "#" }, maxItems: 2 } }),
  ],
  "two that refer to each other": [
    "valid",
    {
      $ref: "#/$defs/even",
      $defs: {
        even: object({ odd: { anyOf: [{ type: "null" }, { $ref: "#/$defs/odd" }] } }),
        odd: object({ even: { anyOf: [{ type: "null" }, { $ref: "#/$defs/even" }] } }),
      },
    },
  ],
  "members of the root's kind": ["valid", { type: "object", additionalProperties: { $ref: "#" } }],
  "a tuple within itself": [
    "valid",
    {
      ...a({ $ref: "#/$defs/pair" }),
      $defs: {
        pair: {
          type: "array",
          prefixItems: [{ type: "null" }, { anyOf: [{ const: 0 }, { $ref: "#/$defs/pair" }] }],
          items: false,
          minItems: 2,
        },
      },
    },
  ],
  "beside another keyword": [
    "valid",
    { ...a({ $ref: "#/$defs/t", maxLength: 3 }), $defs: { t: { type: "string", minLength: 2 } } },
  ],
  "to a name with a slash": [
    "valid",
    { ...a({ $ref: "#/$defs/x~1y" }), $defs: { "x/y": { const: 1 } } },
  ],
  "to a name with a tilde": [
    "valid",
    { ...a({ $ref: "#/$defs/x~0y" }), $defs: { "x~y": { const: 1 } } },
  ],
  "to a name with a blank": [
    "valid",
    { ...a({ $ref: "#/$defs/x%20y" }), $defs: { "x y": { const: 1 } } },
  ],
  "to a name in Cyrillic": [
    "valid",
    { ...a({ $ref: "#/$defs/ключ" }), $defs: { ключ: { const: 1 } } },
  ],
  "into members": ["valid", object({ a: { type: "boolean" }, b: { $ref: "#/properties/a" } })],
  "into a list": [
    "valid",
    object({ a: { anyOf: [{ const: 1 }] }, b: { $ref: "#/properties/a/anyOf/0" } }),
  ],
  "under the older name": [
    "valid",
    { ...a({ $ref: "#/definitions/t" }), definitions: { t: { const: 1 } } },
  ],
  "with an id": [
    "valid",
    { ...a({ $ref: "#/$defs/t" }), $id: "https://example.com/s", $defs: { t: { const: 1 } } },
  ],
  "a loop of two": [
    "#/$defs/p",
    { ...a({ $ref: "#/$defs/p" }), $defs: { p: { $ref: "#/$defs/q" }, q: { $ref: "#/$defs/p" } } },
  ],
  "a loop of one": [
    "#/$defs/p",
    { ...a({ $ref: "#/$defs/p" }), $defs: { p: { $ref: "#/$defs/p" } } },
  ],
  "a list without an end": [
    "#/properties/a",
    a({ type: "array", items: { $ref: "#" }, minItems: 1 }),
  ],
  "a member without an end": ["#", object({ self: { $ref: "#" } })],
  "to nothing": ["#/properties/a/$ref", a({ $ref: "#/$defs/no" })],
  "to another document": ["#/properties/a/$ref", a({ $ref: "https://example.com/s" })],
  "to an anchor": [
    "#/properties/a/$ref",
    { ...a({ $ref: "#t" }), $defs: { t: { $anchor: "t", const: 1 } } },
  ],
  "that are dynamic": ["#/properties/a/$dynamicRef", a({ $dynamicRef: "#t" })],
  "that are no text": ["#/properties/a/$ref", a({ $ref: 7 })],
  "to what Object has": ["#/properties/a/$ref", a({ $ref: "#/constructor" })],
  "20 levels": ["valid", nested(20, { type: "null" })],
});

const NUMBERS = rows("numbers", {
  "one integer": ["valid", a({ type: "integer", minimum: 7, maximum: 7 })],
  "integers between fractions": ["valid", a({ type: "integer", minimum: 0.5, maximum: 1.5 })],
  "no integer between": ["#/properties/a", a({ type: "integer", minimum: 0.1, maximum: 0.9 })],
  "a wrong order": ["#/properties/a", a({ type: "number", minimum: 3, maximum: 2 })],
  "open ends": ["valid", a({ type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1 })],
  "large ends": ["valid", a({ type: "number", minimum: -1e308, maximum: 1e308 })],
  "beyond exact integers": ["valid", a({ type: "integer", minimum: 2 ** 53, maximum: 2 ** 60 })],
  "tiny ends": ["valid", a({ type: "number", minimum: 1e-12, maximum: 3e-12 })],
  cents: ["valid", a({ type: "number", multipleOf: 0.01, minimum: 0, maximum: 99.99 })],
  "multiples of seven": [
    "valid",
    a({ type: "integer", multipleOf: 7, exclusiveMinimum: -50, maximum: 50 }),
  ],
  "multiples of zero": ["#/properties/a/multipleOf", a({ type: "integer", multipleOf: 0 })],
  "multiples below zero": ["#/properties/a/multipleOf", a({ type: "integer", multipleOf: -2 })],
  "a bound that is text": ["#/properties/a/minimum", a({ type: "integer", minimum: "1" })],
  "a bound of draft 4": [
    "#/properties/a/exclusiveMinimum",
    a({ minimum: 1, exclusiveMinimum: true, type: "integer" }),
  ],
  "a negative zero": ["valid", a({ type: "number", minimum: -0, maximum: 0 })],
});

const TEXTS = rows("texts", {
  "no characters": ["valid", a({ type: "string", maxLength: 0 })],
  "50 characters at least": ["valid", a({ type: "string", minLength: 50, maxLength: 10_000 })],
  "a wrong order": ["#/properties/a", a({ type: "string", minLength: 3, maxLength: 2 })],
  "a length below zero": ["#/properties/a/minLength", a({ type: "string", minLength: -1 })],
  "a pattern": ["valid", a({ type: "string", pattern: "^[A-Z]{3}-\\d{4}$" })],
  "a pattern without anchors": ["valid", a({ type: "string", pattern: "foo", maxLength: 8 })],
  "letters with marks": ["valid", a({ type: "string", pattern: "^[à-ü]+$", maxLength: 9 })],
  "classes of Unicode": ["valid", a({ type: "string", pattern: "^\\p{Lu}\\p{Ll}{1,4}$" })],
  "characters beyond 16 bits": ["valid", a({ type: "string", pattern: "^😀{1,3}$" })],
  "quotes and backslashes": ["valid", a({ type: "string", pattern: '^"\\\\"$' })],
  "control characters": ["valid", a({ type: "string", pattern: "^\\n\\t\\u0001$" })],
  "nested repetition": ["valid", a({ type: "string", pattern: "^(a+)+$", maxLength: 20 })],
  "a long repetition": ["valid", a({ type: "string", pattern: "^[a-z]{1,500}$" })],
  "anything, counted": ["valid", a({ type: "string", pattern: "^[\\s\\S]{2}$" })],
  "an empty choice": ["valid", a({ type: "string", pattern: "^(|x)$" })],
  "named groups": ["valid", a({ type: "string", pattern: "^(?<y>\\d{4})$" })],
  "a pattern and a length that exclude each other": [
    "#/properties/a",
    a({ type: "string", pattern: "^aaaa$", maxLength: 3 }),
  ],
  "look-ahead": ["#/properties/a/pattern", a({ type: "string", pattern: "^(?=a)" })],
  "a back reference": ["#/properties/a/pattern", a({ type: "string", pattern: "^(a)\\1$" })],
  "a word's edge": ["#/properties/a/pattern", a({ type: "string", pattern: "\\bfoo\\b" })],
  "no expression": ["#/properties/a/pattern", a({ type: "string", pattern: "(" })],
  "Python's flags": ["#/properties/a/pattern", a({ type: "string", pattern: "(?i)a" })],
  "a pattern that is no text": ["#/properties/a/pattern", a({ type: "string", pattern: 1 })],
  "each format": [
    "valid",
    object(
      Object.fromEntries(
        [
          "date",
          "time",
          "date-time",
          "duration",
          "email",
          "hostname",
          "ipv4",
          "ipv6",
          "uuid",
          "uri",
        ].map((format) => [format, { type: "string", format }]),
      ),
    ),
  ],
  "a format and a length": ["valid", a({ type: "string", format: "email", maxLength: 12 })],
  "a format that annotates": ["valid", a({ type: "integer", format: "int32" })],
  "an unknown format": ["#/properties/a/format", a({ type: "string", format: "phone" })],
});

const VALUES = rows("values", {
  "150 texts": ["valid", a({ enum: texts(150) })],
  "of all types": ["valid", a({ enum: [null, true, 0, -1.5, "x", [], {}, [1, { b: 2 }]] })],
  "quotes, breaks and signs": [
    "valid",
    a({ enum: ['"', "\\", "\n", "\u0000", "😀", "\ud800".toWellFormed()] }),
  ],
  "one of them": ["valid", a({ enum: [null] })],
  none: ["#/properties/a", a({ enum: [] })],
  "the same twice": ["valid", a({ enum: [1, 1] })],
  "an object": ["valid", a({ const: { b: [1, null], "": "" } })],
  "an empty text": ["valid", a({ const: "" })],
  "of another type": ["#/properties/a", a({ type: "string", const: 1 })],
  "a few of them fit": ["valid", a({ type: "integer", enum: ["x", 2, 2.5, 3], maximum: 2 })],
  "a constant that is not in its list": ["#/properties/a", a({ const: 1, enum: [2, 3] })],
  "lists of a length": ["valid", a({ enum: [[1], [1, 2]], minItems: 2 })],
  "objects of a size": ["valid", a({ enum: [{}, { b: 1 }], minProperties: 1 })],
  "beside members": ["#/properties/a", a({ enum: [{ b: 1 }], properties: { b: { const: 1 } } })],
  "of a pattern": ["valid", a({ enum: ["ab", "b", 1], pattern: "^a" })],
  "beside no expression": ["#/properties/a/pattern", a({ enum: ["a"], pattern: "(" })],
  "that make expressions slow": [
    "#/properties/a",
    a({ enum: [`${"a".repeat(40)}!`], pattern: "^(a+)+$" }),
  ],
  "no list": ["#/properties/a/enum", a({ enum: "x" })],
});

const OBJECTS = rows("objects", {
  anything: ["valid", {}],
  "any members": ["valid", { type: "object" }],
  "no members": ["valid", { type: "object", properties: {}, additionalProperties: false }],
  "members named like an object's own": [
    "valid",
    object({ constructor: { const: 1 }, toString: { const: 2 }, hasOwnProperty: { const: 3 } }),
  ],
  "names with signs": [
    "valid",
    object(
      Object.fromEntries(
        ["", " ", "\n", '"', "\\", "/", "~", "ключ", "名前", "😀", "$ref"].map((name) => [
          name,
          { const: 1 },
        ]),
      ),
    ),
  ],
  "40 members": [
    "valid",
    object(Object.fromEntries(texts(40).map((name) => [name, { const: 0 }]))),
  ],
  "members of a kind": [
    "valid",
    { type: "object", additionalProperties: { type: "integer" }, maxProperties: 3 },
  ],
  "a required name without a schema": [
    "valid",
    { type: "object", required: ["x"], maxProperties: 2 },
  ],
  "a required name that is forbidden": [
    "#/additionalProperties",
    { type: "object", required: ["x"], additionalProperties: false },
  ],
  "names of a list": [
    "valid",
    { type: "object", propertyNames: { enum: ["x", "y"] }, minProperties: 1 },
  ],
  "short names": [
    "#/minProperties",
    { type: "object", propertyNames: { maxLength: 2 }, minProperties: 2, maxProperties: 2 },
  ],
  "too many members": ["#/minProperties", { ...a({ const: 1 }), minProperties: 2 }],
  "too few members": ["#/maxProperties", { ...a({ const: 1 }), maxProperties: 0 }],
  "members by a pattern": [
    "#/patternProperties",
    { type: "object", patternProperties: { "^x": {} } },
  ],
  "names that need others": [
    "#/dependentRequired",
    { ...a({ const: 1 }), dependentRequired: { a: ["b"] } },
  ],
  "schemas by a name": ["#/dependentSchemas", { ...a({ const: 1 }), dependentSchemas: { a: {} } }],
  "names that are no texts": ["#/required", { type: "object", required: [1] }],
  "members that are no object": ["#/properties", { type: "object", properties: [] }],
  "nothing unevaluated": [
    "valid",
    {
      ...object({ a: { const: 1 } }, { additionalProperties: undefined }),
      allOf: [{ properties: { b: { const: 2 } } }],
      unevaluatedProperties: false,
    },
  ],
  annotations: [
    "valid",
    a({
      type: "boolean",
      title: "t",
      description: "d",
      default: 1,
      examples: [2],
      $comment: "c",
      deprecated: true,
      readOnly: true,
      "x-own": {},
    }),
  ],
});

const ARRAYS = rows("arrays", {
  "a number of elements": [
    "valid",
    a({ type: "array", items: { enum: [1, 2] }, minItems: 3, maxItems: 3 }),
  ],
  "a wrong order": ["#/properties/a", a({ type: "array", minItems: 3, maxItems: 2 })],
  none: ["valid", a({ type: "array", items: false })],
  "more than may be": ["#/properties/a/items", a({ type: "array", items: false, minItems: 1 })],
  "a tuple": [
    "valid",
    a({ type: "array", prefixItems: [{ const: 1 }, { type: "null" }], items: false, minItems: 2 }),
  ],
  "a tuple of draft 7": [
    "valid",
    a({ type: "array", items: [{ const: 1 }], additionalItems: false, minItems: 1 }),
  ],
  "elements that differ": [
    "#/properties/a/uniqueItems",
    a({ type: "array", items: { enum: [1, 2] }, uniqueItems: true }),
  ],
  "elements that need not differ": [
    "valid",
    a({ type: "array", items: { const: 1 }, uniqueItems: false, maxItems: 2 }),
  ],
  "an element of a kind": ["#/properties/a/contains", a({ type: "array", contains: { const: 1 } })],
  "40 levels": [
    "valid",
    a(
      Array.from({ length: 40 }).reduce<object>(
        (items) => ({ type: "array", items, minItems: 1, maxItems: 1 }),
        { const: 1 },
      ),
    ),
  ],
});

const COMBINED = rows("combined", {
  "one of whole and other numbers": [
    "valid",
    a({ oneOf: [{ type: "integer" }, { type: "number", minimum: 5 }], maximum: 20, minimum: -20 }),
  ],
  "one of two lengths": [
    "valid",
    a({ type: "string", oneOf: [{ minLength: 3 }, { maxLength: 5 }], maxLength: 8 }),
  ],
  "one of two equal values": ["#/properties/a", a({ oneOf: [{ const: 1 }, { const: 1 }] })],
  "one of objects by a kind": [
    "valid",
    a({
      oneOf: [
        object({ kind: { const: "x" }, n: { enum: [1] } }),
        object({ kind: { const: "y" }, t: { enum: ["t"] } }),
      ],
    }),
  ],
  "one of objects that overlap": [
    "valid",
    a({
      oneOf: [
        { type: "object", required: ["x"], properties: { x: { const: 1 } } },
        { type: "object", required: ["y"], properties: { y: { const: 1 } } },
      ],
      maxProperties: 2,
    }),
  ],
  "one of multiples": [
    "#/properties/a/oneOf/0",
    a({ type: "integer", oneOf: [{ multipleOf: 2 }, { multipleOf: 3 }] }),
  ],
  "any of everything": ["valid", a({ anyOf: [true, { const: 1 }], type: "boolean" })],
  "any of none": ["#/properties/a/anyOf", a({ anyOf: [] })],
  "all that agree": ["valid", a({ allOf: [{ type: "integer", minimum: 2 }, { maximum: 4 }] })],
  "all that do not": ["#/properties/a", a({ allOf: [{ type: "integer" }, { type: "string" }] })],
  "not a text": ["valid", a({ type: ["string", "boolean"], not: { type: "string" } })],
  "not some values": [
    "valid",
    a({ type: "integer", minimum: 1, maximum: 3, not: { enum: [1, 3] } }),
  ],
  "not anything": ["#/properties/a", a({ not: {} })],
  "not by a format": ["#/properties/a/not/format", a({ not: { format: "email" } })],
  "by a condition": [
    "valid",
    {
      ...object({ a: { type: "boolean" }, b: { enum: [1, 2] } }),
      if: { properties: { a: { const: true } } },
      [THEN]: { properties: { b: { const: 1 } } },
      else: { properties: { b: { const: 2 } } },
    },
  ],
  "nothing or a text": ["valid", a({ type: ["string", "null"], maxLength: 4 })],
  "nothing, as OpenAPI says it": ["valid", a({ type: "string", nullable: true, maxLength: 4 })],
  "no types": ["#/properties/a/type", a({ type: [] })],
  "an unknown type": ["#/properties/a/type", a({ type: "text" })],
  never: ["#/properties/a", a(false)],
  "a member that may not be": [
    "valid",
    { type: "object", properties: { a: false, b: { const: 1 } }, required: ["b"] },
  ],
  "a schema that is a number": ["#/properties/a", a(3)],
  "many alternatives of many": [
    "#",
    {
      type: "object",
      allOf: Array.from({ length: 12 }, (_, i) => ({
        anyOf: [{ required: [`x${i}`] }, { required: [`y${i}`] }, { required: [`z${i}`] }],
      })),
    },
  ],
});

export const HOSTILE_SCHEMAS: readonly HostileSchema[] = [
  ...REFERENCES,
  ...NUMBERS,
  ...TEXTS,
  ...VALUES,
  ...OBJECTS,
  ...ARRAYS,
  ...COMBINED,
];
