import type { KeyObject } from "node:crypto";
import { join } from "node:path";
import type { SecretKeys } from "@heddle/base/secret-keys";
import { isRevoked } from "@heddle/control/revocations";
import type { RunningCredentials } from "@heddle/node-agent/node-credentials";
import { INSECURE_NODES } from "@heddle/node-agent/own-credentials";
import type { Logger } from "@heddle/observability/logger";
import { authorityHash, type CertificateAuthority } from "@heddle/pki/certificate-authority";
import { formatAuthority } from "@heddle/pki/tls-files";
import type { IsRevoked, NodeCredentials } from "@heddle/rpc/credentials";
import { type BoundServer, bindServer, closeServer } from "@heddle/rpc/server";
import type { OnApplicationShutdown } from "@nestjs/common";
import type { MasterConfig } from "../../config/config.ts";
import type { CatalogSeed } from "../catalog/seed.ts";
import type { OpenControlPlane } from "../control-plane.module.ts";
import type { EnrollmentOptions } from "../enrollment/enrollment.controller.ts";
import { openMasterTls, readJoinToken } from "../enrollment/master-credentials.ts";
import { EventLogWriter } from "../event-log/event-log-writer.ts";
import { stateRoomMib } from "../state-memory.ts";
import { keepStateRoom } from "../state-room.ts";
import { type PreparedCluster, prepareCluster } from "./prepare-cluster.ts";
import { RaftControlPlane, type RaftControlPlaneOptions } from "./raft-control-plane.ts";
import { type RaftService, starting } from "./raft-service.ts";
import { readOrCreateClusterToken } from "./secrets.ts";

type Given = "directory" | "lock" | "logger" | "onFatal" | "onRemoved" | "newestVersion";

export interface RaftMemberOptions extends Pick<RaftControlPlaneOptions, Given> {
  readonly config: MasterConfig;
  readonly keys: SecretKeys;
  /** The shipped models' weights; undefined leaves the models as they are. */
  readonly seed: CatalogSeed | undefined;
  /** Events in a file of the event log; tests have fewer. */
  readonly eventSegment?: number | undefined;
}

/** How long calls of other nodes may continue after the replica has stopped. */
const CALLS_GRACE_MS = 1_000;

/**
 * This master as a member of its group: its credentials, its gRPC server and its replica. It serves
 * other masters before `open`, since a group forms and a new member catches up by their calls.
 */
export class RaftMember implements OnApplicationShutdown {
  readonly service: RaftService;
  readonly server: BoundServer;
  readonly #options: RaftMemberOptions;
  readonly #own: OwnCredentials;
  readonly #closing = new AbortController();
  #control: RaftControlPlane | undefined;
  /** Known once the cluster has its keys. */
  #pepper: KeyObject | undefined;

  private constructor(
    options: RaftMemberOptions,
    service: RaftService,
    own: OwnCredentials,
    server: BoundServer,
  ) {
    this.#options = options;
    this.service = service;
    this.#own = own;
    this.server = server;
  }

  /** Binds the server, which has no services yet. */
  static async bind(options: RaftMemberOptions, service: RaftService): Promise<RaftMember> {
    const { config, keys, logger } = options;
    const own = await openCredentials(config, keys, logger);
    const { grpcHost: host, grpcPort: port } = config;
    let member: RaftMember | undefined;
    const { credentials } = own;
    const revoked: IsRevoked = (...call) => member?.isRevoked(...call) ?? false;
    const server = await bindServer({ host, port, credentials, isRevoked: revoked });
    member = new RaftMember(options, service, own, server);
    return member;
  }

  isRevoked(...[node, { valid_from: from }]: Parameters<IsRevoked>): boolean {
    if (!this.#control) return false;
    return isRevoked(this.#control.state.cluster, node, Date.parse(from));
  }

  get enrollment(): EnrollmentOptions {
    const { credentials, authority } = this.#own;
    const { tls } = credentials;
    if (!authority || !tls) throw new Error("nodes enrol with TLS only");
    const { certificateLifetimeMs } = this.#options.config;
    const control = () => {
      if (this.#control) return this.#control;
      throw starting();
    };
    const pepper = () => {
      if (this.#pepper) return this.#pepper;
      throw starting();
    };
    return { authority, tls, certificateLifetimeMs, log: this.#options.logger, control, pepper };
  }

  /** Finds or forms the group, and gives a new cluster its secrets, first key and models. */
  async open(): Promise<OpenControlPlane & Pick<PreparedCluster, "shownKey">> {
    const { config, keys, logger, seed } = this.#options;
    const { credentials, authority } = this.#own;
    const directory = join(config.dataDirectory, "events");
    const control = await RaftControlPlane.open(this.#groupOptions(), undefined, (cluster) =>
      EventLogWriter.open(directory, cluster, this.#options.onFatal, this.#options.eventSegment),
    );
    this.#control = control;
    control.onApplied((command) => {
      if (command === undefined || command.type === "node.revoke") this.server.endRevoked();
    });
    const { bootstrapKeyFile, enrollKeyFile } = config;
    const { signal } = this.#closing;
    const files = { bootstrapKeyFile, enrollKeyFile };
    const { pepper, shownKey } = await prepareCluster(
      control,
      { ...files, seed, signal, authority: authority && formatAuthority(authority) },
      logger,
    );
    this.#pepper = pepper;
    void keepStateRoom(control, stateRoomMib(), logger, signal);
    const speaker: NodeCredentials = { ...credentials, cluster: control.status().cluster };
    const hash = authority && authorityHash(authority.certificate);
    return { control, pepper, credentials: speaker, keys, authorityHash: hash, shownKey };
  }

  #groupOptions(): RaftControlPlaneOptions {
    const { config, keys, seed: _, eventSegment: __, ...given } = this.#options;
    const { masterId: name, peers, walSegmentBytes, snapshotEntries, raftPort } = config;
    const { server, service } = this;
    return {
      ...given,
      keys,
      name,
      server,
      service,
      credentials: this.#own.credentials,
      peers: peers.size > 0 ? peers : new Map([[name, server.address]]),
      segmentBytes: walSegmentBytes,
      snapshotEntries,
      raftPort,
      // Read again while this master waits to be added.
      joinToken: () => readJoinToken(config.joinTokenFile),
    };
  }

  /** The replica hands over what it leads, while other masters can still call. */
  async onApplicationShutdown(): Promise<void> {
    this.#closing.abort();
    if (this.#control) await this.#control.close();
    else await this.#options.lock.close();
    await closeServer(this.server.server, this.#control ? CALLS_GRACE_MS : 0);
    this.#own.credentials.close();
  }
}

const INSECURE_HTTP =
  "no TLS for the HTTP API (--insecure-bind): who can reach its port can read keys and what they send";

interface OwnCredentials {
  readonly credentials: RunningCredentials;
  readonly authority: CertificateAuthority | undefined;
}

/** With TLS this master's certificate, otherwise the nodes' shared token. */
async function openCredentials(
  config: MasterConfig,
  keys: SecretKeys,
  log: Logger,
): Promise<OwnCredentials> {
  const { dataDirectory, masterId: name, authorityFile, joinTokenFile, peers } = config;
  if (config.isHttpExposed) log.warn(INSECURE_HTTP);
  if (config.isExposed) log.warn(INSECURE_NODES);
  if (!config.tls) {
    const clusterToken = await readOrCreateClusterToken(config.clusterTokenFile);
    return { credentials: plainCredentials(name, clusterToken), authority: undefined };
  }
  const others = [...peers].flatMap(([peer, address]) => (peer === name ? [] : [address]));
  const { certificateLifetimeMs } = config;
  const own = { dataDirectory, name, authorityFile, joinTokenFile, certificateLifetimeMs, keys };
  return openMasterTls({ ...own, others, log });
}

function plainCredentials(name: string, clusterToken: string): RunningCredentials {
  return { clusterToken, node: { role: "master", name }, close: () => {} };
}
