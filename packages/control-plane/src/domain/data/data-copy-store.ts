/**
 * Interface to the dataset versions that nodes keep for projects. Each method runs its own
 * transaction. Implemented in store/datasets/data-copies.ts.
 */
import type { CopiedProject, DatasetPin } from './data-copies.ts';

export type DataCopyStore = {
  /**
   * Returns the projects with a running deployment that want more than one copy, in a stable order.
   * Excludes stopped projects and projects that are being deleted, like `ofProject`.
   */
  projects(): Promise<CopiedProject[]>;
  /** Returns the project with its running deployment, whatever its `data_copies`; null: none runs. */
  ofProject(projectId: string): Promise<CopiedProject | null>;
  /** Returns the pins of all nodes, ordered. */
  pins(): Promise<DatasetPin[]>;
  /** Returns the pins of a node with the names of the projects and datasets. */
  onNode(nodeId: string): Promise<(DatasetPin & { project: string; name: string })[]>;
  /**
   * Adds and removes pins. A pin of a project or node that is gone is not added. The same change
   * twice has one effect.
   */
  change(pins: { add: readonly DatasetPin[]; remove: readonly DatasetPin[] }): Promise<void>;
};
