import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { createServer, type Server } from "node:https";
import type { TLSSocket } from "node:tls";
import { toAppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { ApiregistrationV1Api, CoreV1Api, type KubeConfig } from "@kubernetes/client-node";
import type { Demand } from "./demand.ts";
import { answerMetrics, failure, METRICS_GROUP, type MetricsReply } from "./external-metrics.ts";

const API_SERVICE = `v1beta1.${METRICS_GROUP}`;
/** Where an API server says by which certificates it proxies requests. */
const PROXY_CONFIG = { name: "extension-apiserver-authentication", namespace: "kube-system" };
const TIMEOUT_MS = 5_000;
const MAX_CONNECTIONS = 64;

export interface MetricsServerOptions {
  readonly config: KubeConfig;
  readonly port: number;
  /** The name and namespace of the Service that the API server calls. */
  readonly service: { readonly name: string; readonly namespace: string };
  readonly demand: () => Promise<Demand>;
  readonly log: Log;
}

/** Who proxies requests for users that it has authenticated and authorised. */
interface Proxy {
  readonly authority: string;
  /** Its names; empty for any. */
  readonly names: readonly string[];
}

/**
 * Serves the cluster's demand to autoscalers. Only the API server is answered: it shows its proxy's
 * certificate, and has checked the rights of each caller. The server's own certificate is new at each
 * start, and the APIService names it to the API server.
 */
export async function serveMetrics(options: MetricsServerOptions): Promise<Server> {
  const { config, port, service, log } = options;
  const host = `${service.name}.${service.namespace}.svc`;
  const proxy = await proxyOf(config);
  const { certificate, privateKey } = await createOwnCertificate([host]);
  const server = createServer(
    {
      key: privateKey,
      cert: certificate,
      ca: proxy.authority,
      requestCert: true,
      rejectUnauthorized: false,
      minVersion: "TLSv1.2",
      requestTimeout: TIMEOUT_MS,
      headersTimeout: TIMEOUT_MS,
    },
    async (request, reply) => {
      const { status, body } = await answer(request, proxy, options);
      reply.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    },
  );
  server.maxConnections = MAX_CONNECTIONS;
  await once(server.listen(port), "listening");
  try {
    await register(config, certificate);
  } catch (error) {
    server.close();
    throw error;
  }
  log.info({ apiService: API_SERVICE, host }, "metrics are served to autoscalers");
  return server;
}

async function answer(
  request: IncomingMessage,
  proxy: Proxy,
  { demand, log }: Pick<MetricsServerOptions, "demand" | "log">,
): Promise<MetricsReply> {
  if (!isProxy(request.socket as TLSSocket, proxy)) {
    return failure(401, "Unauthorized", "only the API server is answered");
  }
  if (request.method !== "GET") return failure(405, "MethodNotAllowed", "metrics are only read");
  try {
    return await answerMetrics(request.url?.split("?")[0] ?? "", demand);
  } catch (error) {
    const { message } = toAppError(error);
    log.warn({ error: message }, "the demand could not be read");
    return failure(503, "ServiceUnavailable", `the masters do not answer: ${message}`);
  }
}

function isProxy(socket: TLSSocket, { names }: Proxy): boolean {
  if (!socket.authorized) return false;
  const name = socket.getPeerCertificate().subject?.CN;
  return names.length === 0 || names.includes(String(name));
}

async function proxyOf(config: KubeConfig): Promise<Proxy> {
  const { data = {} } = await config.makeApiClient(CoreV1Api).readNamespacedConfigMap(PROXY_CONFIG);
  const authority = data["requestheader-client-ca-file"];
  if (!authority) throw new Error(`${PROXY_CONFIG.name} has no requestheader-client-ca-file`);
  const names: unknown = JSON.parse(data["requestheader-allowed-names"] || "[]");
  return { authority, names: Array.isArray(names) ? names.map(String) : [] };
}

async function register(config: KubeConfig, certificate: string): Promise<void> {
  const caBundle = Buffer.from(certificate).toString("base64");
  const body = [{ op: "add", path: "/spec/caBundle", value: caBundle }];
  await config.makeApiClient(ApiregistrationV1Api).patchAPIService({ name: API_SERVICE, body });
}
