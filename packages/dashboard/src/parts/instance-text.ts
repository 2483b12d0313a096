/** Short texts about the instances of a project. */
import type { PlacedInstance } from '@berth/wire/instance';
import type { Project } from '@berth/wire/project';
import { sizeText } from '@berth/wire/size-text';

const WEB = 'web';

export const countOf = ({ processes }: Pick<Project, 'processes'>, process = WEB): number =>
  processes.find(({ name }) => name === process)?.count ?? 1;

type Counted = Pick<PlacedInstance, 'state'>;
/** Counts the instances of `web`: the state of the other processes is `up`. */
const servingOf = (instances: readonly Counted[], wanted: number) => {
  const serving = instances.filter(({ state }) => state === 'serving').length;
  return { serving, all: Math.max(wanted, serving) };
};

/** Returns how many instances serve, in words: `2 of 3 instances serve`. */
export function servingText(instances: readonly Counted[], wanted: number): string {
  const { serving, all } = servingOf(instances, wanted);
  if (all === 1) return serving === 1 ? '1 instance serves' : 'the instance does not serve';
  return `${serving} of ${all} instances serve`;
}

/** Returns which instances serve, for a sentence: `2 of 3 instances`; null if one is enough. */
export function servingPart(instances: readonly Counted[], wanted: number): string | null {
  const { serving, all } = servingOf(instances, wanted);
  if (all === 1) return null;
  return serving === all ? `${all} instances` : `${serving} of ${all} instances`;
}

/** Returns why an instance is on its node, in words; null if the decision is not known. */
export function whyThere({ node_id, placement }: PlacedInstance): string | null {
  const row = placement?.items.find((item) => item.node_id === node_id);
  if (placement === null || row === undefined || placement.winner !== node_id) return null;
  const rivals = placement.items.filter((item) => item.eligible && item !== row);
  const data =
    row.missing_bytes > 0
      ? `${sizeText(row.missing_bytes)} to copy`
      : row.cached_dataset_count > 0 && 'its data is there';
  const choice = choiceText(row.score, rivals);
  return data === false ? choice : `${data}; ${choice}`;
}

function choiceText(score: number, rivals: readonly { score: number }[]): string {
  if (rivals.length === 0) return 'no other node could take it';
  return rivals.every((other) => other.score <= score)
    ? `best score (${score.toFixed(2)})`
    : `score ${score.toFixed(2)}: a node with fewer instances comes first`;
}
