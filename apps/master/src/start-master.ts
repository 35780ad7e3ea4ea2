import "reflect-metadata";
import type { AddressInfo } from "node:net";
import type { Server } from "@grpc/grpc-js";
import { closeContext } from "@heddle/rpc/nest/close-context";
import { GrpcTransport } from "@heddle/rpc/nest/grpc-transport";
import type { DynamicModule, INestApplication } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import type { NestFastifyApplication } from "@nestjs/platform-fastify";
import type { MasterConfig } from "./config/config.ts";
import { createHttpAdapter } from "./http/fastify-server.ts";

/** A listening master. */
export interface Master {
  readonly url: string;
  readonly app: INestApplication;
  /** Admits no more calls, lets the running ones end within the drain's time, aborts the rest. */
  close(): Promise<void>;
}

/** Starts the module: its loops, then its gRPC services on the bound server, then HTTP. */
export async function startMaster(
  module: DynamicModule,
  config: MasterConfig,
  server?: Server,
): Promise<Master> {
  const adapter = createHttpAdapter(config);
  const app = await NestFactory.create<NestFastifyApplication>(module, adapter, {
    bodyParser: false,
    logger: false,
    abortOnError: false,
    forceCloseConnections: true,
  });
  try {
    if (server) app.connectMicroservice({ strategy: new GrpcTransport(server) });
    await app.init();
    await app.startAllMicroservices();
    await app.listen(config.httpPort, config.httpHost);
  } catch (error) {
    await closeContext(app);
    throw error;
  }
  const { port } = app.getHttpServer().address() as AddressInfo;
  const { httpHost, httpTls } = config;
  const host = httpHost.includes(":") ? `[${httpHost}]` : httpHost;
  return {
    app,
    url: `${httpTls ? "https" : "http"}://${host}:${port}`,
    close: () => closeContext(app),
  };
}
