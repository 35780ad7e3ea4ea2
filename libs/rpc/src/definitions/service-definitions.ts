import type { ServiceDefinition } from "@grpc/grpc-js";
import protobuf from "protobufjs/light.js";
import { messageClosure } from "./message-closure.ts";

/**
 * How messages are decoded: 64-bit integers to numbers, enums to their names, bytes to Buffers.
 * Absent plain fields have their default, and a oneof's name holds its set member.
 */
const DECODED = { longs: Number, enums: String, defaults: true, oneofs: true } as const;

type Message = Readonly<Record<string, unknown>>;

/**
 * The services of a description in protobufjs's JSON, by their full names, for grpc-js. A type is
 * read and its codec made at the first message: a process uses few of them. That is why this is not
 * proto-loader, which describes every type for reflection at the start.
 */
export function servicesOf(descriptors: string): Map<string, ServiceDefinition> {
  const all = JSON.parse(descriptors) as protobuf.INamespace;
  const services = new Map<string, ServiceDefinition>();
  const visit = (space: protobuf.INamespace, path: readonly string[]) => {
    for (const [name, each] of Object.entries(space.nested ?? {})) {
      const own = [...path, name];
      if ("methods" in each) services.set(own.join("."), definitionOf(all, own, each));
      else visit(each as protobuf.INamespace, own);
    }
  };
  visit(all, []);
  return services;
}

function definitionOf(
  all: protobuf.INamespace,
  path: readonly string[],
  { methods }: protobuf.IService,
): ServiceDefinition {
  const codec = (type: string) => codecOf(() => typeOf(all, path, type));
  return Object.fromEntries(
    Object.entries(methods).map(([name, { requestType, responseType, ...rest }]) => {
      const request = codec(requestType);
      const response = codec(responseType);
      return [
        name,
        {
          path: `/${path.join(".")}/${name}`,
          requestStream: rest.requestStream === true,
          responseStream: rest.responseStream === true,
          requestSerialize: request.encode,
          requestDeserialize: request.decode,
          responseSerialize: response.encode,
          responseDeserialize: response.decode,
          originalName: name.charAt(0).toLowerCase() + name.slice(1),
        },
      ];
    }),
  );
}

function typeOf(all: protobuf.INamespace, from: readonly string[], name: string): protobuf.Type {
  const { descriptors, fullName } = messageClosure(all, from, name);
  return protobuf.Root.fromJSON(descriptors).lookupType(fullName);
}

function codecOf(find: () => protobuf.Type) {
  let found: protobuf.Type | undefined;
  const type = () => (found ??= find());
  return {
    // On Node its writer makes Buffers.
    encode: (value: Message) => type().encode(type().fromObject(value)).finish() as Buffer,
    decode: (bytes: Buffer): Message => type().toObject(type().decode(bytes), DECODED),
  };
}
