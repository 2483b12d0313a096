/** The control plane itself: its settings in force and its backups. */
import { type Static, Type } from 'typebox';
import { Id, literals, orNull, Time } from './vocabulary.ts';

/**
 * `default`: not set, so the default applies. `hidden`: set, but not shown because the value can be
 * a secret.
 */
export const SETTING_SOURCES = ['set', 'default', 'hidden'] as const;
export const SettingInForce = Type.Object({
  name: Type.String(),
  value: orNull(
    Type.String({ description: 'as an operator writes it; null: hidden, or it has no default' }),
  ),
  source: literals(SETTING_SOURCES),
  doc: Type.String({ description: 'what it does, as in docs/settings.md' }),
});
export type SettingInForce = Static<typeof SettingInForce>;

export const BackupEntry = Type.Object({
  id: Id,
  name: orNull(Type.String({ description: 'null while it is made, and if it failed' })),
  target: Type.String({ description: 'folder or address, without credentials' }),
  scheduled: Type.Boolean({ description: 'false: somebody made it by hand' }),
  bytes: orNull(Type.Number()),
  error: orNull(Type.String()),
  started_at: Time,
  finished_at: orNull(
    Type.Unsafe<Time>({ ...Time, description: 'null: it is being made, or its process died' }),
  ),
});

/**
 * Kinds of notes of /readyz. setting_missing: a setting is not set, which can be a decision.
 * node_version: Node.js is old. older_agents: agents are older than the control plane.
 * certificates: hosts have no good certificate. other: every other problem.
 */
export const NOTE_KINDS = [
  'setting_missing',
  'node_version',
  'older_agents',
  'certificates',
  'other',
] as const;
export const OperatorNote = Type.Object({ kind: literals(NOTE_KINDS), text: Type.String() });
export type OperatorNote = Static<typeof OperatorNote>;

export const SystemReadiness = Type.Object({
  status: literals(['ready', 'degraded', 'not_ready']),
  parts: Type.Array(
    Type.Object({
      name: Type.String(),
      ok: Type.Boolean(),
      required: Type.Boolean({
        description: 'true: without this part the control plane cannot serve',
      }),
      detail: Type.String(),
    }),
  ),
  notes: Type.Array(Type.String(), {
    description: 'warnings about settings, certificates and nodes',
  }),
  warnings: Type.Optional(
    Type.Array(OperatorNote, {
      description: 'the notes with their kinds; absent: an earlier version answers',
    }),
  ),
});
export type SystemReadiness = Static<typeof SystemReadiness>;

export const System = Type.Object({
  readiness: Type.Optional(
    Type.Unsafe<SystemReadiness>({
      ...SystemReadiness,
      description: 'what /readyz of the control plane answers; absent: an earlier version answers',
    }),
  ),
  settings: Type.Array(SettingInForce, {
    description: 'of the control plane that answers, by name',
  }),
  backups: Type.Object({
    interval_seconds: orNull(
      Type.Number({ description: 'BACKUP_INTERVAL; null: no scheduled backups' }),
    ),
    next_at: orNull(Time),
    items: Type.Array(BackupEntry, { description: 'the last ones, newest first' }),
  }),
});
