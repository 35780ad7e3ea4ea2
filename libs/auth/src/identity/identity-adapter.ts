/** A user or service, as its identity provider names it. */
export interface TokenUser {
  /** In the cluster, as `usr_...`: the same for each token of the subject. */
  readonly id: string;
  /** The name to which roles are bound. */
  readonly subject: string;
  readonly groups: readonly string[];
  /** Names of roles that the token itself claims, in the whole cluster. */
  readonly roles: readonly string[];
}

/** The port to what says who the users are: the tokens of an identity provider. */
export interface IdentityAdapter {
  /** Whether a text has the form of its tokens; API keys have not. It makes no calls. */
  recognizes(text: string): boolean;
  /**
   * The user. Rejects with `invalid_api_key` and a reason without a part of the token, or with
   * `unavailable` where the provider cannot be asked.
   */
  verify(text: string): Promise<TokenUser>;
}
