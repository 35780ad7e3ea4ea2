/** A driver for dynamic resource allocation without hardware: prepares every claim, and says so. */
import { mkdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import {
  loadPackageDefinition,
  Server,
  ServerCredentials,
  type ServerUnaryCall,
  type ServiceClientConstructor,
  type sendUnaryData,
} from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";

const [, , driver = "", protos = ""] = process.argv;
const KUBELET = "/var/lib/kubelet";
const endpoint = join(KUBELET, "plugins", driver, "dra.sock");
const registration = join(KUBELET, "plugins_registry", `${driver}-reg.sock`);

interface Claims {
  readonly claims: readonly { readonly uid: string }[];
}

function service(file: string, path: string) {
  const loaded = loadPackageDefinition(loadSync(join(protos, file), { defaults: true }));
  const found = path.split(".").reduce((place, name) => place[name] as never, loaded);
  return (found as unknown as ServiceClientConstructor).service;
}

const answer =
  <Request, Reply>(reply: (request: Request) => Reply) =>
  ({ request }: ServerUnaryCall<Request, Reply>, send: sendUnaryData<Reply>) =>
    send(null, reply(request));

const each = ({ claims }: Claims) => Object.fromEntries(claims.map(({ uid }) => [uid, {}]));

async function listen(path: string, add: (server: Server) => void): Promise<void> {
  mkdirSync(dirname(path), { recursive: true });
  rmSync(path, { force: true });
  const server = new Server();
  add(server);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.bindAsync(`unix:${path}`, ServerCredentials.createInsecure(), (error) =>
    error ? reject(error) : resolve(),
  );
  await promise;
}

await listen(endpoint, (server) =>
  server.addService(service("dra.proto", "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"), {
    NodePrepareResources: answer((request: Claims) => {
      for (const { uid } of request.claims) console.log(`prepared ${uid}`);
      return { claims: each(request) };
    }),
    NodeUnprepareResources: answer((request: Claims) => ({ claims: each(request) })),
  }),
);
const info = { type: "DRAPlugin", name: driver, endpoint, supportedVersions: ["v1.DRAPlugin"] };
await listen(registration, (server) =>
  server.addService(service("registration.proto", "pluginregistration.Registration"), {
    GetInfo: answer(() => info),
    NotifyRegistrationStatus: answer(
      (status: { readonly pluginRegistered: boolean; readonly error: string }) => {
        console.log(status.pluginRegistered ? "registered" : `refused: ${status.error}`);
        return {};
      },
    ),
  }),
);
