// The registry reads its configuration from a volume, because an agent makes it read-only there while it cleans (docs/clean-up.md). The
// file of the operator is copied when it changed since the last copy. Otherwise the volume stays as it is: an agent may be cleaning.
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** @returns {string | null} what was done, for the log */
export function copyRegistryConfig(from, folder) {
  const text = readFileSync(from, 'utf8');
  const [file, last] = [join(folder, 'registry.yml'), join(folder, 'copied.yml')];
  const isNew = read(file) === null;
  if (!isNew && read(last) === text) return null;
  // In this order, so that a copy that was interrupted is repeated.
  for (const path of [file, last]) {
    writeFileSync(`${path}.new`, text, { mode: 0o600 });
    renameSync(`${path}.new`, path);
  }
  return isNew ? 'created the configuration of the registry' : 'compose/registry.yml has changed. Run: docker compose restart registry';
}

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if (error.code === 'ENOENT') return null;
    throw error;
  }
}
