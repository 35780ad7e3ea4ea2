import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { DESCRIPTORS } from "@heddle/contracts/generated/descriptors";
import protobuf from "protobufjs/light.js";

/** Decoded messages: 64-bit integers as numbers, enums by name, defaults, and which of a oneof is set. */
const DECODED = { longs: Number, enums: String, defaults: true, oneofs: true } as const;

const root = protobuf.Root.fromJSON(JSON.parse(DESCRIPTORS)).resolveAll();

/**
 * A service of proto/ for grpc-js. Without proto-loader, which describes each message for reflection: that
 * takes as long as the rest of it, in every process and thread.
 */
export function serviceDefinition(name: string): ServiceDefinition {
  const { methodsArray } = root.lookupService(name);
  return Object.fromEntries(
    methodsArray.map((method) => [
      method.name,
      methodDefinition(method, `/${name}/${method.name}`),
    ]),
  );
}

function methodDefinition(
  {
    name,
    requestStream,
    responseStream,
    resolvedRequestType,
    resolvedResponseType,
  }: protobuf.Method,
  path: string,
): MethodDefinition<object, object> {
  if (!resolvedRequestType || !resolvedResponseType)
    throw new Error(`${path} has unknown messages`);
  const request = codecOf(resolvedRequestType);
  const response = codecOf(resolvedResponseType);
  return {
    path,
    originalName: protobuf.util.lcFirst(name),
    requestStream: requestStream ?? false,
    responseStream: responseStream ?? false,
    requestSerialize: request.serialize,
    requestDeserialize: request.deserialize,
    responseSerialize: response.serialize,
    responseDeserialize: response.deserialize,
  };
}

/** Protobufjs makes the code of a message when the first is read or written. */
function codecOf(type: protobuf.Type) {
  return {
    serialize: (message: object) => type.encode(type.fromObject(message)).finish() as Buffer,
    deserialize: (bytes: Buffer): object => type.toObject(type.decode(bytes), DECODED),
  };
}
