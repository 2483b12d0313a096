/** Entity tags of what people change: they cover what a person sets, so that nothing that the platform does makes an edit stale. */
import { ProjectPatch } from '@berth/wire/project';
import type { Role } from '@berth/wire/vocabulary';
import { maySeeEnv } from '../domain/access.ts';
import type { DatasetRecord, ProjectRecord, ProjectSettings, UserRecord } from '../domain/records.ts';
import { etagOf } from './etag.ts';

const SETTABLE = Object.keys(ProjectPatch.properties).sort() as (keyof ProjectSettings)[];

/** Of a viewer's answer it covers the names of `env` alone: a digest of short values would tell them. */
export function projectTag(project: ProjectRecord, role: Role): string {
  const env = maySeeEnv(role) ? project.env : Object.keys(project.env).sort();
  return etagOf(JSON.stringify([project.id, project.name, ...SETTABLE.map((key) => (key === 'env' ? env : project[key]))]));
}

export const datasetTag = ({ id, name, nfs_path }: DatasetRecord): string => etagOf(JSON.stringify([id, name, nfs_path]));

/** The password too: its hash is salted, so the digest of it tells nothing. */
export const userTag = ({ id, email, role, disabled, password_hash }: UserRecord): string =>
  etagOf(JSON.stringify([id, email, role, disabled, password_hash]));
