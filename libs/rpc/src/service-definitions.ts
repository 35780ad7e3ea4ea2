import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import protobuf from "protobufjs/light.js";

/**
 * How messages are decoded: 64-bit integers to numbers, enums to their names, bytes to Buffers.
 * Absent plain fields have their default, and a oneof's name holds its set member.
 */
const DECODED = { longs: Number, enums: String, defaults: true, oneofs: true } as const;

type Message = Readonly<Record<string, unknown>>;

/**
 * The services of a description in protobufjs's JSON, by their full names, for grpc-js. A type is
 * resolved and its codec made at the first message: a process uses few of them. That is why this
 * is not proto-loader, which describes every type for reflection at the start.
 */
export function servicesOf(descriptors: string): Map<string, ServiceDefinition> {
  const root = protobuf.Root.fromJSON(JSON.parse(descriptors) as protobuf.INamespace);
  const services = new Map<string, ServiceDefinition>();
  const visit = (space: protobuf.NamespaceBase) => {
    for (const each of space.nestedArray) {
      if (each instanceof protobuf.Service)
        services.set(each.fullName.slice(1), definitionOf(each));
      else if (each instanceof protobuf.Namespace) visit(each);
    }
  };
  visit(root);
  return services;
}

function definitionOf(service: protobuf.Service): ServiceDefinition {
  const path = `/${service.fullName.slice(1)}`;
  return Object.fromEntries(
    service.methodsArray.map((method) => [method.name, methodOf(path, service, method)]),
  );
}

function methodOf(
  path: string,
  service: protobuf.Service,
  { name, requestStream, responseStream, requestType, responseType }: protobuf.Method,
): MethodDefinition<Message, Message> {
  const request = codecOf(() => service.lookupType(requestType));
  const response = codecOf(() => service.lookupType(responseType));
  return {
    path: `${path}/${name}`,
    requestStream: requestStream === true,
    responseStream: responseStream === true,
    requestSerialize: request.encode,
    requestDeserialize: request.decode,
    responseSerialize: response.encode,
    responseDeserialize: response.decode,
    originalName: name.charAt(0).toLowerCase() + name.slice(1),
  };
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
