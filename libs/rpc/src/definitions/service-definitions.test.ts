import { fromJSON } from "@grpc/proto-loader";
import { DESCRIPTORS } from "@heddle/contracts/generated/descriptors";
import fc from "fast-check";
import protobuf from "protobufjs/light.js";
import { expect, test } from "vitest";
import { servicesOf } from "./service-definitions.ts";

// The definitions against those of proto-loader, which grpc-js recommends.

const DECODED = { longs: Number, enums: String, defaults: true, oneofs: true };
const reference = fromJSON(JSON.parse(DESCRIPTORS), DECODED);
const services = servicesOf(DESCRIPTORS);
const root = protobuf.Root.fromJSON(JSON.parse(DESCRIPTORS)).resolveAll();

interface Definition {
  readonly path: string;
  readonly requestSerialize: (message: object) => Buffer;
  readonly requestDeserialize: (bytes: Buffer) => object;
  readonly responseSerialize: (message: object) => Buffer;
  readonly responseDeserialize: (bytes: Buffer) => object;
}

const methodsOf = (service: object | undefined) =>
  Object.values((service ?? {}) as Record<string, Definition>);

const plain = (methods: readonly Definition[]) =>
  methods.map(({ path, ...rest }) => {
    const { originalName, requestStream, responseStream } = rest as Record<string, unknown>;
    return { path, originalName, requestStream, responseStream };
  });

test("services: all of proto/, with the paths and streams of proto-loader", () => {
  const names = Object.keys(reference).filter((name) => !("format" in (reference[name] ?? {})));
  expect([...services.keys()].sort()).toEqual(names.sort());
  for (const name of names) {
    expect(plain(methodsOf(services.get(name)))).toEqual(plain(methodsOf(reference[name])));
  }
});

test("messages: both sides make the same bytes and the same values", () => {
  for (const [name, service] of services) {
    const expected = methodsOf(reference[name]);
    const { methodsArray } = root.lookupService(name);
    for (const [at, own] of methodsOf(service).entries()) {
      const other = expected[at] as Definition;
      const { resolvedRequestType, resolvedResponseType } = methodsArray[at] as protobuf.Method;
      check(messagesOf(resolvedRequestType), own.requestSerialize, own.requestDeserialize, [
        other.requestSerialize,
        other.requestDeserialize,
      ]);
      check(messagesOf(resolvedResponseType), own.responseSerialize, own.responseDeserialize, [
        other.responseSerialize,
        other.responseDeserialize,
      ]);
    }
  }
});

function check(
  messages: fc.Arbitrary<object>,
  encode: Definition["requestSerialize"],
  decode: Definition["requestDeserialize"],
  [encodeOther, decodeOther]: [typeof encode, typeof decode],
): void {
  fc.assert(
    fc.property(messages, (message) => {
      const bytes = encode(message);
      expect(Buffer.isBuffer(bytes)).toBe(true);
      expect(bytes.equals(encodeOther(message))).toBe(true);
      expect(decode(bytes)).toEqual(decodeOther(bytes));
    }),
    { numRuns: 5 },
  );
}

/** Messages of a type, with some of its fields. */
function messagesOf(type: protobuf.Type | null, depth = 0): fc.Arbitrary<object> {
  const fields = (type?.fieldsArray ?? []).flatMap((field): [string, fc.Arbitrary<unknown>][] => {
    const value = valuesOf(field, depth);
    if (value === undefined) return [];
    if (field instanceof protobuf.MapField) return [[field.name, fc.constant({})]];
    return [[field.name, field.repeated ? fc.array(value, { maxLength: 3 }) : value]];
  });
  return fc.record(Object.fromEntries(fields), { requiredKeys: [] });
}

function valuesOf(field: protobuf.Field, depth: number): fc.Arbitrary<unknown> | undefined {
  const { resolvedType, type } = field;
  if (resolvedType instanceof protobuf.Enum) {
    return fc.constantFrom(...Object.keys(resolvedType.values));
  }
  if (resolvedType) return depth < 4 ? messagesOf(resolvedType, depth + 1) : undefined;
  if (type === "string") return fc.string();
  if (type === "bool") return fc.boolean();
  if (type === "bytes") return fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes));
  return fc.nat(type === "float" || type === "double" ? 1000 : 2 ** 31 - 1);
}
