/**
 * Interfaces to the published routes and the owners of custom domains. Each method runs its own
 * transaction, and documents its rule and the codes of DomainError that it throws. Implemented in
 * store/.
 */
import type { RouteRecord } from '../platform/records.ts';

/** A route with the fields of its project that the proxy's configuration needs. */
export type PublishedRoute = RouteRecord & {
  project_name: string;
  auth_required: boolean;
  domains?: readonly string[];
  /** True: a cookie keeps a visitor on one instance. Absent: false. */
  sticky?: boolean;
  /** True: the project is scaled to 0. Set only if the route leads to the page. */
  at_zero?: boolean;
  /** The health path of the version that serves. Absent: null. */
  health_path?: string | null;
};

export type RouteStore = {
  /** Returns all routes. Throws if they cannot be read; never returns an empty list instead. */
  all(): Promise<PublishedRoute[]>;
};

/**
 * Store of the owners of custom domains (store/domains.ts). The project store changes the owners.
 */
export type DomainStore = {
  /**
   * Removes domains and domain prefixes whose quarantine has ended. Returns the number of removed
   * domains.
   */
  sweep(now: number): Promise<number>;
  /**
   * Ends the quarantine of a host, and of the prefix that has this host. Throws not_found (neither
   * is in quarantine), wrong_state (a project has or serves it).
   */
  free(host: { domain: string; prefix: string | null }, now: number): Promise<void>;
};
