/** A name of this agent that outlives its process and its node's id: whose mount folders are whose on a SVC_ROOT that several share. */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { orNull, writeWhole } from './disk.ts';

export async function readAgentId(path: string): Promise<string> {
  const kept = ((await orNull(readFile(path, 'utf8'))) ?? '').trim();
  if (kept !== '') return kept;
  const id = randomUUID();
  await writeWhole(path, id);
  return id;
}
