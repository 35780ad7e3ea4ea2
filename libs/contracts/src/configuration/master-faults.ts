import { isLoopback, splitHostPort } from "@heddle/base/network/network-address";
import type { MasterSettings } from "./master-settings.ts";

/** A fault, and the place to correct: a flag, a variable, or a line of the file. */
export interface SettingFault {
  readonly setting: string;
  readonly place: string;
  readonly message: string;
}

/** Faults between settings that are each correct. `at` names where a setting is given. */
export function crossFaults(
  settings: MasterSettings,
  at: (name: string) => string,
): readonly SettingFault[] {
  const faults: SettingFault[] = [];
  const fault = (setting: keyof MasterSettings, message: string) =>
    faults.push({ setting, place: at(setting), message });
  const { peers, name, http_host: httpHost } = settings;
  if (peers.size > 0 && !peers.has(name)) {
    fault("peers", `must name this master too: add ${name}=host:port, or give its --name`);
  }
  if (settings.max_reading_bytes < 2 * settings.max_body_bytes) {
    fault("max_reading_bytes", `must be at least twice ${at("max_body_bytes")}`);
  }
  if (settings.model_file !== "" && settings.profile !== "") {
    fault("profile", `and ${at("model_file")} exclude each other: give one of them`);
  }
  const hasCertificate = settings.http_cert_file !== "";
  if (hasCertificate !== (settings.http_key_file !== "")) {
    const [given, missing] = hasCertificate
      ? (["http_cert_file", "http_key_file"] as const)
      : (["http_key_file", "http_cert_file"] as const);
    fault(given, `needs ${at(missing)} too: HTTPS takes a certificate with its key`);
  }
  // API keys would cross the network in the clear.
  if (!settings.insecure_bind && !hasCertificate && !isLoopback(httpHost)) {
    fault(
      "http_host",
      `${httpHost} is reachable from other machines, and the HTTP API has no certificate: give --http-cert-file and --http-key-file, put a proxy with TLS before 127.0.0.1, or give --insecure-bind to serve it in the clear`,
    );
  }
  return faults;
}

/** Whether nodes of other machines can or must be reached. */
export function leavesLoopback({ grpc_host: grpcHost, peers }: MasterSettings): boolean {
  const hosts = [...peers.values()].map((address) => splitHostPort(address)[0]);
  return ![grpcHost, ...hosts].every(isLoopback);
}
