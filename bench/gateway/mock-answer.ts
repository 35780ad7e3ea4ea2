/** The immediate answer of both mock engines to every request. */
export const mockModel = "mock-instant";

/** Each delta is a distinct word, so that a lost or moved one is detected. */
export const mockDeltas: readonly string[] = Array.from({ length: 64 }, (_, i) => `w${i} `);

export const mockText = mockDeltas.join("");

export const mockUsage = { promptTokens: 64, completionTokens: mockDeltas.length };

/** A chat request of an ordinary size, a system message and a question of about 60 words. */
export function mockRequest(stream: boolean): string {
  const words = Array.from({ length: 60 }, (_, i) => `word${i}`).join(" ");
  return JSON.stringify({
    model: mockModel,
    messages: [
      { role: "system", content: "You are a helpful assistant." },
      { role: "user", content: words },
    ],
    max_tokens: 256,
    temperature: 0.7,
    stream,
  });
}
