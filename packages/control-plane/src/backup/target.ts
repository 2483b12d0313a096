/** The interface of a place that stores backups. */
import type { Readable } from 'node:stream';
import type { Named } from './names.ts';

export type Target = {
  /** Address for messages and the record, without credentials. */
  shown: string;
  /** Folder of the backups on this machine; null for object storage. */
  folder: string | null;
  /** Writes the whole backup, or leaves no file with this name. */
  put(name: string, content: Readable): Promise<void>;
  get(name: string): Promise<Readable>;
  list(): Promise<Named[]>;
  remove(name: string): Promise<void>;
};
