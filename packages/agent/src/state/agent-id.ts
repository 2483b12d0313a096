/**
 * Manages the agent's own id. It survives restarts and changes of the node's id, and marks this
 * agent's mount folders on a shared SVC_ROOT.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { nullIfMissing, writeWhole } from '../file-system.ts';

export async function readAgentId(path: string): Promise<string> {
  const saved = ((await nullIfMissing(readFile(path, 'utf8'))) ?? '').trim();
  if (saved !== '') return saved;
  const id = randomUUID();
  await writeWhole(path, id);
  return id;
}
