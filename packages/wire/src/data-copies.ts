/**
 * Copies of the datasets of a project on several nodes (`data_copies`), so that another node can
 * take the project over without a copy.
 */
import { type Static, Type } from 'typebox';
import { Id, literals, orNull } from './vocabulary.ts';

/** Capability of an agent that keeps the dataset versions that the control plane names. */
export const DATASET_PINS = 'dataset_pins';

/** Maximum of `data_copies` of a project. */
export const MAX_DATA_COPIES = 5;
/** Maximum number of versions that a node keeps for projects. */
export const MAX_DATASET_PINS = 2_000;

/** A version of a dataset. */
const PinnedVersion = Type.Object({ dataset_id: Id, version: Type.Integer({ minimum: 1 }) });
export type PinnedVersion = Static<typeof PinnedVersion>;

/** The versions that an agent must not evict, although nothing on its node mounts them. */
export const DatasetPins = Type.Object({
  etag: Type.String({ maxLength: 100 }),
  items: Type.Array(PinnedVersion, { maxItems: MAX_DATASET_PINS }),
});
export type DatasetPins = Static<typeof DatasetPins>;

/**
 * State of the copies on one node. `serving`: a container of the project mounts them. `leaving`:
 * the node keeps them only until another node has them all.
 */
export const COPY_STATES = ['serving', 'complete', 'copying', 'waiting', 'leaving'] as const;

export const DataCopies = Type.Object({
  wanted: Type.Integer({ description: '`data_copies` of the project' }),
  have: Type.Integer({
    description: 'nodes that can take work now and hold every version of the running deployment',
  }),
  versions: Type.Array(
    Type.Object({
      dataset_id: Id,
      name: Type.String(),
      version: Type.Integer(),
      bytes: orNull(Type.Number({ description: 'null: this version is no longer the newest' })),
    }),
    { description: 'versions of the `dependency` datasets that the running deployment uses' },
  ),
  nodes: Type.Array(
    Type.Object({
      node_id: Id,
      node: Type.String({ description: 'hostname' }),
      state: literals(COPY_STATES),
      missing: Type.Array(Type.String({ description: 'such as `genomes v3`' })),
      detail: orNull(Type.String({ description: 'why the node waits or leaves' })),
    }),
  ),
  why: orNull(Type.String({ description: 'why there are not more copies; null: none is missing' })),
});
export type DataCopies = Static<typeof DataCopies>;
