const TIMEOUT_MS = 5_000;
const MAX_BYTES = 512 * 1024;

/** A form to post; the document is the answer. */
export interface PostedForm {
  readonly body: URLSearchParams;
  readonly authorization: string;
}

/** A small JSON document. Redirects are refused; it has 5 s and 512 KiB. */
export async function fetchJson(url: URL, form?: PostedForm): Promise<unknown> {
  const response = await fetch(url, {
    redirect: "error",
    headers: {
      accept: "application/json",
      ...(form && { authorization: form.authorization }),
    },
    ...(form && { method: "POST", body: form.body }),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  if (!response.ok) {
    await response.body?.cancel();
    throw new Error(`${url.href} answered ${response.status}`);
  }
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of response.body ?? []) {
    bytes += piece.length;
    if (bytes > MAX_BYTES) throw new Error(`${url.href} answered more than ${MAX_BYTES} bytes`);
    pieces.push(piece);
  }
  return JSON.parse(Buffer.concat(pieces).toString("utf8"));
}
