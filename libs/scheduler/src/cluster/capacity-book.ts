import type { NodeSnapshot, TaskPlacement, TaskRequest } from "../model.ts";
import { rejectedBy } from "./eligibility.ts";
import { offered, SCALARS, WHOLE_DEVICE_MILLI } from "./units.ts";

/** Why a start must be refused. */
export type CapacityRefusal =
  | "partial_gang"
  | "unknown_node"
  | "node_not_eligible"
  | "wrong_devices"
  | "over_capacity";

/** A node and the amounts that its tasks hold. */
interface Account {
  node: NodeSnapshot | undefined;
  readonly scalars: Float64Array;
  /** Thousandths by device. */
  readonly gpuMilli: number[];
}

/**
 * The amounts held on each node, updated task by task, so that a check costs only the start's own
 * tasks. Apply keeps one beside the replicated state and checks every start of a plan. So a stale
 * plan can neither commit a device twice nor a part of a gang.
 */
export class CapacityBook {
  readonly #accounts = new Map<string, Account>();

  /** Adds or changes a node; the amounts held on it stay. */
  setNode(node: NodeSnapshot): void {
    this.#account(node.id).node = node;
  }

  removeNode(id: string): void {
    this.#accounts.delete(id);
  }

  hold(request: TaskRequest, place: TaskPlacement): void {
    this.#move(request, place, 1);
  }

  release(request: TaskRequest, place: TaskPlacement): void {
    this.#move(request, place, -1);
  }

  /** Takes places for the whole gang, or returns why not and takes none. */
  take(
    request: TaskRequest,
    tasks: number,
    placements: readonly TaskPlacement[],
    overcommitRatio: number,
  ): CapacityRefusal | undefined {
    if (placements.length !== tasks) return "partial_gang";
    const nodes = new Set(placements.map(({ nodeId }) => nodeId));
    if (request.onePerNode && nodes.size < tasks) return "node_not_eligible";
    for (const [rank, place] of placements.entries()) {
      const problem = this.#refusal(request, place, overcommitRatio);
      if (!problem) {
        this.hold(request, place);
        continue;
      }
      for (const taken of placements.slice(0, rank)) this.release(request, taken);
      return problem;
    }
    return undefined;
  }

  /** The first free devices of the node that a task may take; undefined where it may not run there now. */
  devicesFor(request: TaskRequest, nodeId: string): number[] | undefined {
    const healthy = this.#accounts.get(nodeId)?.node?.devices ?? [];
    const one = { ...request, gpus: 1 };
    const isFree = (device: number) =>
      this.#refusal(one, { nodeId, devices: [device] }, 1) === undefined;
    const free = [...healthy.keys()].filter(isFree).slice(0, request.gpus);
    return free.length === request.gpus ? free : undefined;
  }

  /** The devices that it could have if nothing ran on the node; undefined where it may not run there. */
  devicesIfIdle(request: TaskRequest, nodeId: string): number[] | undefined {
    const node = this.#accounts.get(nodeId)?.node;
    if (!node || rejectedBy(request, node)) return undefined;
    const isAble = (device: number) =>
      node.devices[device]!.healthy && (request.gpuIndex ?? device) === device;
    const able = [...node.devices.keys()].filter(isAble).slice(0, request.gpus);
    return able.length === request.gpus ? able : undefined;
  }

  #refusal(
    request: TaskRequest,
    { nodeId, devices }: TaskPlacement,
    overcommitRatio: number,
  ): CapacityRefusal | undefined {
    const account = this.#accounts.get(nodeId);
    if (!account?.node) return "unknown_node";
    const { node, scalars, gpuMilli } = account;
    if (rejectedBy(request, node)) return "node_not_eligible";
    if (devices.length !== request.gpus) return "wrong_devices";
    if (devices.length > 1 && new Set(devices).size !== devices.length) return "wrong_devices";
    if (request.gpuIndex !== undefined && devices[0] !== request.gpuIndex) return "wrong_devices";
    const fits = SCALARS.every((name, column) => {
      const wanted = request.scalars[name];
      return wanted === 0 || scalars[column]! + wanted <= offered(node, name, overcommitRatio);
    });
    const hasRoom = devices.every((device) => {
      const held = gpuMilli[device] ?? 0;
      return node.devices[device]?.healthy && held + request.gpuMilli <= WHOLE_DEVICE_MILLI;
    });
    return fits && hasRoom ? undefined : "over_capacity";
  }

  #move(request: TaskRequest, { nodeId, devices }: TaskPlacement, sign: 1 | -1): void {
    const { scalars, gpuMilli } = this.#account(nodeId);
    for (let column = 0; column < SCALARS.length; column++) {
      scalars[column]! += sign * request.scalars[SCALARS[column]!];
    }
    for (const device of devices) {
      gpuMilli[device] = (gpuMilli[device] ?? 0) + sign * request.gpuMilli;
    }
  }

  #account(id: string): Account {
    let account = this.#accounts.get(id);
    if (!account) {
      account = { node: undefined, scalars: new Float64Array(SCALARS.length), gpuMilli: [] };
      this.#accounts.set(id, account);
    }
    return account;
  }
}
