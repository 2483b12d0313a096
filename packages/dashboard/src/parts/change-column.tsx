/** The last column of a table: a menu with the actions for its row. */
import { Menu, type MenuItem } from '../ui/controls.tsx';
import type { Cell } from '../ui/data.tsx';

export const changeColumn = <T,>(
  nameOf: (row: T) => string,
  itemsOf: (row: T) => readonly MenuItem[],
): Cell<T> => ({
  head: 'Change',
  cell: (row) => <Menu label={`Actions for ${nameOf(row)}`} items={itemsOf(row)} />,
});

type Removal<T> = {
  /** Returns the row's name for the label of its menu. */
  nameOf: (row: T) => string;
  label?: string;
  /** The reason why the row cannot be removed now; null if it can. */
  reason: string | null;
  onClick: (row: T) => void;
};
/** Returns a column whose menu can only remove its row. */
export const removeColumn = <T,>({
  nameOf,
  label = 'Remove',
  reason,
  onClick,
}: Removal<T>): Cell<T> =>
  changeColumn(nameOf, (row) => [{ label, danger: true, reason, onClick: () => onClick(row) }]);
