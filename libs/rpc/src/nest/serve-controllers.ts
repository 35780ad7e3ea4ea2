import type { Server } from "@grpc/grpc-js";
import type { DynamicModule, INestMicroservice } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { GrpcTransport } from "./grpc-transport.ts";

/** Serves the gRPC controllers of a module on a bound server, which outlives the context. */
export async function serveControllers(
  module: DynamicModule,
  server: Server,
): Promise<INestMicroservice> {
  const app = await NestFactory.createMicroservice(module, {
    strategy: new GrpcTransport(server),
    logger: false,
    abortOnError: false,
  });
  await app.listen();
  return app;
}
