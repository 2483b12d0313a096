/** Settings of loops that need more than stores. */
import type { ForgeAnswer, ForgeRequest, ForgeToken } from '../domain/git/forge-api.ts';
import type { Scanner } from '../domain/data/scan.ts';

export type ScanSettings = {
  scanner: Scanner;
  /** DATASET_NFS_BASE_PATH */
  basePath: string;
  scanIntervalMs: number;
  scansAtOnce: number;
  /** Number of versions that each dataset keeps. */
  historyKeep: number;
};

/** Inputs for sending commit statuses, besides the stores. */
export type StatusSettings = {
  send(request: ForgeRequest, signal: AbortSignal): Promise<ForgeAnswer>;
  /** Returns the git token of a project, or null. */
  tokenOf(projectId: string): Promise<(ForgeToken & { apiUrl: string | null }) | null>;
  publicUrl: string;
};
