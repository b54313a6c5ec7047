/** One line of `roundtrip verify`: a recomputed quantity against the reference's. */
export interface CheckRow {
  name: string
  /** Worst absolute and relative difference; NaN where the comparison is exact (ids, counts). */
  abs: number
  rel: number
  /** The condition, as text: 'equal', '1e-4 of the largest magnitude'. */
  limit: string
  pass: boolean
  /** Where the worst element is, or what differs. */
  detail?: string
}
