/** The interface of a place where backups are. */
import type { Readable } from 'node:stream';
import type { Named } from './names.ts';

export type Target = {
  /** For messages and the record; contains no credentials. */
  shown: string;
  /** Folder on this machine, or null. */
  folder: string | null;
  /** Writes all or nothing. */
  put(name: string, content: Readable): Promise<void>;
  get(name: string): Promise<Readable>;
  list(): Promise<Named[]>;
  remove(name: string): Promise<void>;
};
